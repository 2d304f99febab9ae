// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/optimizer.hpp: the C++ base of an optimizer; each virtual is the slot of that name in ddh/kind/optimizer.h,
// which documents it. Failures are thrown. Below it, what element-wise optimizers share.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "ddh/sdk/plugin.hpp"
#include "ddh/sdk/simd.hpp"

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
  // For DDH_NEEDS_PARAM_NORM: how many sums of squares over a parameter, and the values to square.
  [[nodiscard]] virtual uint32_t sum_count() const noexcept { return 0; }
  virtual void prepare(const ddh_prepare_args&) {}
  [[nodiscard]] virtual bool slot_used(uint32_t, int32_t) const noexcept { return true; }

  [[nodiscard]] const void* interface(std::string_view id) const override;
};

namespace detail {
// The arguments of an update as this build's structs, all of them checked.
struct UpdateCopy {
  explicit UpdateCopy(const ddh_update_args* given)
      : args(copy_of(given)), shard(copy_of(args.shard)), block(copy_of(args.block)) {
    args.shard = &shard;
    args.block = &block;
  }
  UpdateCopy(const UpdateCopy&) = delete;
  UpdateCopy& operator=(const UpdateCopy&) = delete;
  ddh_update_args args;
  ddh_optim_shard shard;
  ddh_step_block block;
};
}  // namespace detail

inline const void* Optimizer::interface(std::string_view id) const {
  static const ddh_optimizer_api table = {
      sizeof(ddh_optimizer_api),
      0,
      [](ddh_inst* i, const ddh_model_desc* model, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Optimizer>(i).attach(*model); });
      },
      [](ddh_inst* i) noexcept { return static_cast<uint32_t>(self_as<Optimizer>(i).slots().size()); },
      [](ddh_inst* i, uint32_t index, ddh_slot_desc* out, ddh_err* err) noexcept {
        return guard(err, [&] {
          const auto slots = self_as<Optimizer>(i).slots();
          if (index >= slots.size())
            fail(DDH_OUT_OF_RANGE, "optimizer slot ", index, " does not exist; there are ", slots.size());
          copy_out(slots[index], *out);
        });
      },
      [](ddh_inst* i, int32_t param) noexcept { return self_as<Optimizer>(i).needs(param); },
      [](ddh_inst* i, const ddh_update_args* args, ddh_err* err) noexcept {
        return guard(err, [&] {
          const detail::UpdateCopy mine(args);
          if (mine.block.skip == 0) self_as<Optimizer>(i).update(mine.args);
        });
      },
      [](ddh_inst* i) noexcept { return self_as<Optimizer>(i).sum_count(); },
      [](ddh_inst* i, const ddh_prepare_args* args, ddh_err* err) noexcept {
        return guard(err, [&] {
          ddh_prepare_args mine = copy_of(args);
          const detail::UpdateCopy update(mine.update);
          mine.update = &update.args;
          self_as<Optimizer>(i).prepare(mine);
        });
      },
      [](ddh_inst* i, uint32_t index, int32_t param) noexcept -> int32_t {
        return self_as<Optimizer>(i).slot_used(index, param) ? 1 : 0;
      },
  };
  return id == DDH_OPTIMIZER_IFACE ? &table : nullptr;
}

// The largest magnitude of an element of the gradient; 0: no bound.
inline float clip_value(const ddh_step_block& block) {
  return DDH_HAS(&block, ddh_step_block, clip_value) ? static_cast<float>(block.clip_value) : 0.0F;
}

// What the sum of the gradient sources is multiplied with: one rounding, the same for every cut and every scheme.
inline float unbounded_scale(const ddh_step_block& block) {
  return static_cast<float>(block.inv_scale * block.clip_factor);
}

// What the pieces of for_each_piece are multiplied with: those that are held to clip_value are scaled already.
inline float gradient_scale(const ddh_step_block& block) {
  return clip_value(block) > 0 ? 1.0f : unbounded_scale(block);
}

// Per parameter of the model: 1 where weight decay applies. With `groups`, not where the model marks NO_DECAY.
inline std::vector<uint8_t> decaying_params(const ddh_model_desc& model, bool groups) {
  std::vector<uint8_t> decays(model.n_params, 1);
  for (uint32_t i = 0; groups && i < model.n_params; ++i)
    decays[i] = (model.params[i]->attributes & DDH_PARAM_NO_DECAY) == 0;
  return decays;
}

// Two decay rates of moments from the configuration.
struct Betas {
  double first = 0, second = 0;
};
inline Betas betas(const SectionOptions& options, std::string_view name) {
  const auto values = options.f64s<2>(name);
  for (const double beta : values)
    if (!(beta >= 0 && beta < 1))
      fail(DDH_INVALID_ARGUMENT, options.key(name), " holds ", beta, "; both lie in [0, 1)");
  return {values[0], values[1]};
}

// Refuses a shard that this optimizer can't update.
inline void check_shard(const ddh_optim_shard& shard, uint32_t n_slots) {
  if (shard.n_grads == 0) fail(DDH_INVALID_ARGUMENT, "a shard came without gradient; pass at least one source");
  if (shard.n_slots != n_slots)
    fail(DDH_INVALID_ARGUMENT, "a shard came with ", shard.n_slots, " optimizer slots, the optimizer has ", n_slots,
         "; allocate what slot_count and slot say");
  if (shard.lowp != nullptr && shard.lowp_dtype != DDH_BF16 && shard.lowp_dtype != DDH_F16)
    fail(DDH_UNIMPLEMENTED, "no low-precision copy in dtype ", shard.lowp_dtype, "; use bf16 or fp16");
}

namespace detail {
struct AddSources {
  DDH_SIMD_BODY void run(float* dst, const float* a, const float* b, uint64_t numel) {
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i) dst[i] = a[i] + b[i];
  }
};

// dst = scale src, held in [-limit, limit]; a NaN stays one.
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
// gradient g0[i] + g1[i], or g0[i] where g1 is null, times gradient_scale. Further sources are summed in order, piece by
// piece in the first cache; there too elements are held to clip_value, so that loops know nothing of it.
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
    const uint32_t n_summed = limit > 0 ? n : n - 1;  // the last one is left to the loop, else
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
