// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/optimizer.hpp: the C++ base class of an optimizer. Each virtual function is the slot of that name in
// ddh/kind/optimizer.h, which documents it. Failures are thrown. The functions below it are shared by element-wise
// optimizers.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "ddh/sdk/kernels/simd.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class Optimizer : public Instance {
 public:
  using Instance::Instance;
  virtual void attach(const ddh_model_desc& model) = 0;
  // The state arrays; the descriptors and their names live as long as the instance.
  [[nodiscard]] virtual std::span<const ddh_slot_desc> slots() const noexcept = 0;
  [[nodiscard]] virtual int32_t needs(int32_t) const noexcept { return DDH_NEEDS_NOTHING; }
  // Not called when the step is skipped.
  virtual void update(const ddh_update_args& args) = 0;
  // For DDH_NEEDS_PARAM_NORM: the number of sums of squares over a parameter, and the values to square.
  [[nodiscard]] virtual uint32_t sum_count() const noexcept { return 0; }
  virtual void prepare(const ddh_prepare_args&) {}
  [[nodiscard]] virtual bool slot_used(uint32_t, int32_t) const noexcept { return true; }
  // Elements of a slot with DDH_SLOT_SIZED, for a parameter that uses it.
  [[nodiscard]] virtual uint64_t slot_numel(uint32_t, int32_t) const noexcept { return 0; }
  // For an optimizer that evaluates other weights than the master: true, and what it shows.
  [[nodiscard]] virtual bool shows() const noexcept { return false; }
  virtual void show(const ddh_optim_shard&, float* /*dst*/) const {}
  // Numbers of its state, and the call in which a step sets them: on every rank, before the step's updates, not in a step
  // that is skipped. `value` points into the instance.
  struct Number {
    const char* name;
    double* value;
  };
  [[nodiscard]] virtual std::vector<Number> numbers() { return {}; }
  virtual void advance(const ddh_step_block&) {}

  [[nodiscard]] const void* interface(std::string_view id) const override;

 protected:
  // The elements of a slot with DDH_SLOT_SIZED for range `index` of a shard.
  [[nodiscard]] void* sized_slot(const ddh_optim_shard& shard, uint32_t slot, uint32_t index) const;
};

// The largest magnitude of an element of the gradient; 0: no bound.
float clip_value(const ddh_step_block& block);

// The factor for the sum of the gradient sources: one rounding, the same for every sharding and strategy.
float unbounded_scale(const ddh_step_block& block);

// The factor for the pieces of for_each_piece. With clip_value they are already scaled.
float gradient_scale(const ddh_step_block& block);

// Per parameter of the model: 1 if weight decay applies. With `groups`, parameters that the model marks NO_DECAY get 0.
std::vector<uint8_t> decaying_params(const ddh_model_desc& model, bool groups);

// Two decay rates of moments from the configuration.
struct Betas {
  double first = 0, second = 0;
};
Betas betas(const SectionOptions& options, std::string_view name);

// Refuses a shard that this optimizer can't update.
void check_shard(const ddh_optim_shard& shard, uint32_t n_slots);

namespace detail {
struct AddSources {
  DDH_SIMD_BODY void run(float* dst, const float* a, const float* b, uint64_t numel) {
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i) dst[i] = a[i] + b[i];
  }
};

// dst = scale * src, clamped to [-limit, limit]; a NaN stays a NaN.
struct Bound {
  DDH_SIMD_BODY void run(float* dst, const float* src, float scale, float limit, uint64_t numel) {
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i) {
      const float g = src[i] * scale;
      dst[i] = g > limit ? limit : g < -limit ? -limit : g;
    }
  }
};
}  // namespace detail

// Calls apply(offset, numel, g0, g1) for pieces of a range: element `offset + i` of the shard's buffers has the
// gradient g0[i] + g1[i], or g0[i] where g1 is null, times gradient_scale. Further sources are summed in order, in
// pieces that fit the first cache. Elements are clamped to clip_value there too, so the callers need no code for it.
template <class Apply>
void for_each_piece(const ddh_step_block& block, const ddh_optim_shard& shard, const ddh_range& range, Apply&& apply) {
  constexpr uint64_t kPiece = 2048;
  const uint64_t begin = range.flat_offset;
  const uint32_t n = shard.n_grads;
  const float limit = clip_value(block);
  if (n <= 2 && limit == 0) {
    apply(begin, range.numel, shard.grads[0] + begin, n == 2 ? shard.grads[1] + begin : nullptr);
    return;
  }
  alignas(64) std::array<float, kPiece> sum;
  for (uint64_t done = 0; done < range.numel; done += kPiece) {
    const uint64_t at = begin + done;
    const uint64_t numel = std::min(kPiece, range.numel - done);
    const uint32_t n_summed = limit > 0 ? n : n - 1;  // without a limit the loop adds the last one
    const float* partial = shard.grads[0] + at;
    for (uint32_t source = 1; source < n_summed; ++source) {
      Kernel<detail::AddSources>::run(sum.data(), partial, shard.grads[source] + at, numel);
      partial = sum.data();
    }
    if (limit > 0) {
      Kernel<detail::Bound>::run(sum.data(), partial, unbounded_scale(block), limit, numel);
      apply(at, numel, static_cast<const float*>(sum.data()), static_cast<const float*>(nullptr));
    } else {
      apply(at, numel, partial, shard.grads[n - 1] + at);
    }
  }
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
