// SPDX-License-Identifier: Apache-2.0
//
// plugins/optimizers/adam.hpp: the update that adam and adamw share, and muon for what is no matrix (Kingma and Ba 2015):
//
//   m  = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
//   p -= lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)          t = updates of this parameter
//
// Weight decay is decoupled (p -= lr weight_decay p, before that) or L2 (g += weight_decay p, at first).
//
// State: two fp32 numbers per parameter. One pass: reads g, p, m, v and writes p, m, v, 28 bytes per parameter, with
// plain stores, for the lines have just been loaded. Scalars are computed in double, elements in float.
#pragma once

#include <cmath>

#include "ddh/sdk/lowp.hpp"
#include "ddh/sdk/optimizer.hpp"

namespace adam DDH_HIDDEN {

enum class Decay { decoupled, l2 };

struct Options {
  ddh::Betas betas;
  double eps = 0;
  double weight_decay = 0;
};

// The scalars of one parameter's update.
struct Scalars {
  float grad_scale;  // unscale and clip
  float decay;       // L2: weight_decay
  float keep;        // decoupled: 1 - lr * weight_decay
  float beta2;
  float weight1;         // 1 - beta1
  float weight2;         // 1 - beta2
  float inv_sqrt_bias2;  // 1 / sqrt(1 - beta2^t)
  float eps;
  float step_size;  // lr / (1 - beta1^t)
};

// `t` counts the parameter's updates, this one included.
inline Scalars scalars_of(const Options& options, const ddh_step_block& block, double lr, int64_t t, bool decays) {
  const double decay = decays ? options.weight_decay : 0.0;
  const auto updates = static_cast<double>(t);
  Scalars s{};
  s.grad_scale = ddh::gradient_scale(block);
  s.decay = static_cast<float>(decay);
  s.keep = static_cast<float>(1.0 - lr * decay);
  s.beta2 = static_cast<float>(options.betas.second);
  s.weight1 = static_cast<float>(1.0 - options.betas.first);
  s.weight2 = static_cast<float>(1.0 - options.betas.second);
  s.inv_sqrt_bias2 = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(options.betas.second, updates)));
  s.eps = static_cast<float>(options.eps);
  s.step_size = static_cast<float>(lr / (1.0 - std::pow(options.betas.first, updates)));
  return s;
}

// One piece: numel elements of every array. grad_b and lowp may be null.
struct Piece {
  float* param;
  float* exp_avg;
  float* exp_avg_sq;
  const float* grad_a;
  const float* grad_b;
  uint16_t* lowp;
  uint64_t numel;
};

template <Decay kDecay, class Store, bool kTwoSources>
DDH_SIMD_INLINE void adam_loop(const Piece& piece, const Scalars& scalars) {
  const Scalars s = scalars;
  float* const p = piece.param;
  float* const m = piece.exp_avg;
  float* const v = piece.exp_avg_sq;
  const float* const a = piece.grad_a;
  const float* const b = piece.grad_b;
  uint16_t* const lowp = piece.lowp;
  const uint64_t numel = piece.numel;
  DDH_SIMD_LOOP
  for (uint64_t i = 0; i < numel; ++i) {
    const float sum = kTwoSources ? a[i] + b[i] : a[i];
    const float scaled = sum * s.grad_scale;
    const float g = kDecay == Decay::l2 ? scaled + s.decay * p[i] : scaled;
    const float m1 = m[i] + s.weight1 * (g - m[i]);
    const float v1 = s.beta2 * v[i] + (s.weight2 * g) * g;
    const float denom = std::sqrt(v1) * s.inv_sqrt_bias2 + s.eps;
    const float kept = kDecay == Decay::l2 ? p[i] : p[i] * s.keep;
    const float p1 = kept - s.step_size * (m1 / denom);
    m[i] = m1;
    v[i] = v1;
    p[i] = p1;
    Store::store(lowp, i, p1);
  }
}

template <Decay kDecay, class Store>
struct Update {
  DDH_SIMD_BODY void run(const Piece& piece, const Scalars& scalars) {
    if (piece.grad_b != nullptr)
      adam_loop<kDecay, Store, true>(piece, scalars);
    else
      adam_loop<kDecay, Store, false>(piece, scalars);
  }
};

// One range of a shard whose moments are slots `exp_avg` and `exp_avg_sq`.
template <Decay kDecay>
void update_range(const ddh_step_block& block, const ddh_optim_shard& shard, const ddh_range& range, float* exp_avg,
                  float* exp_avg_sq, const Scalars& scalars) {
  auto* const lowp = static_cast<uint16_t*>(shard.lowp);
  ddh::for_each_piece(block, shard, range, [&](uint64_t at, uint64_t numel, const float* a, const float* b) {
    const Piece piece{
        shard.master + at, exp_avg + at, exp_avg_sq + at, a, b, lowp == nullptr ? nullptr : lowp + at, numel};
    ddh::with_lowp(lowp, shard.lowp_dtype,
                   [&](auto store) { ddh::Kernel<Update<kDecay, decltype(store)>>::run(piece, scalars); });
  });
}

// The plugin behind adam and adamw.
template <Decay kDecay>
class Plugin final : public ddh::Optimizer {
 public:
  explicit Plugin(const ddh_create& create)
      : Optimizer(create),
        options_{ddh::betas(options, "betas"), options.f64("eps"), options.f64("weight_decay")},
        decay_groups_(options.flag("decay_groups")) {}

  void attach(const ddh_model_desc& model) override { decays_ = ddh::decaying_params(model, decay_groups_); }

  [[nodiscard]] std::span<const ddh_slot_desc> slots() const noexcept override { return kSlots; }

  void update(const ddh_update_args& args) override {
    const ddh_optim_shard& shard = *args.shard;
    ddh::check_shard(shard, static_cast<uint32_t>(kSlots.size()));
    for (uint32_t r = 0; r < shard.n_ranges; ++r) {
      const ddh_range& range = shard.ranges[r];
      const Scalars scalars = scalars_of(options_, *args.block, args.block->lr, args.param_steps[range.param],
                                         decays_.at(static_cast<size_t>(range.param)) != 0);
      update_range<kDecay>(*args.block, shard, range, static_cast<float*>(shard.slots[0]),
                           static_cast<float*>(shard.slots[1]), scalars);
    }
  }

 private:
  static constexpr std::array<ddh_slot_desc, 2> kSlots{{
      {sizeof(ddh_slot_desc), DDH_F32, "exp_avg", DDH_SLOT_PER_ELEMENT, 0},
      {sizeof(ddh_slot_desc), DDH_F32, "exp_avg_sq", DDH_SLOT_PER_ELEMENT, 0},
  }};

  const Options options_;
  const bool decay_groups_;
  std::vector<uint8_t> decays_;  // per parameter of the model
};

}  // namespace DDH_HIDDEN
