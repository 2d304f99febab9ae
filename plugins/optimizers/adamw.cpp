// SPDX-License-Identifier: Apache-2.0
//
// adamw: Adam with decoupled weight decay (Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization"), as
// torch.optim.AdamW does it:
//
//   p -= lr weight_decay p
//   m  = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
//   p -= lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)          t = updates of this parameter
//
// State: two fp32 numbers per parameter. One pass: reads g, p, m, v and writes p, m, v, 28 bytes per parameter, with
// plain stores, for the lines have just been loaded. Scalars are computed in double, elements in float.
#include <cmath>

#include "ddh/sdk/lowp.hpp"
#include "ddh/sdk/optimizer.hpp"

namespace {

constexpr const char* kSchema = R"({
  "type": "object",
  "properties": {
    "lr": {"type": "number", "minimum": 0, "default": 3e-4,
           "description": "learning rate; the schedule multiplies it"},
    "betas": {"type": "array", "items": {"type": "number", "minimum": 0}, "minItems": 2,
              "maxItems": 2, "default": [0.9, 0.999], "description": "decay of the first and second moment"},
    "eps": {"type": "number", "minimum": 0, "default": 1e-8, "description": "added to the denominator"},
    "weight_decay": {"type": "number", "minimum": 0, "default": 0.01, "description": "decoupled weight decay"},
    "decay_groups": {"type": "boolean", "default": true,
                     "description": "true: parameters that the model marks as no_decay get none; false: all decay"}
  }
})";
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

// The scalars of one parameter's update.
struct Scalars {
  float grad_scale;  // unscale and clip
  float keep;        // 1 - lr * weight_decay
  float beta2;
  float weight1;         // 1 - beta1
  float weight2;         // 1 - beta2
  float inv_sqrt_bias2;  // 1 / sqrt(1 - beta2^t)
  float eps;
  float step_size;  // lr / (1 - beta1^t)
};

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

template <class Store, bool kTwoSources>
DDH_SIMD_INLINE void adamw_loop(const Piece& piece, const Scalars& scalars) {
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
    const float g = sum * s.grad_scale;
    const float m1 = m[i] + s.weight1 * (g - m[i]);
    const float v1 = s.beta2 * v[i] + (s.weight2 * g) * g;
    const float denom = std::sqrt(v1) * s.inv_sqrt_bias2 + s.eps;
    const float p1 = p[i] * s.keep - s.step_size * (m1 / denom);
    m[i] = m1;
    v[i] = v1;
    p[i] = p1;
    Store::store(lowp, i, p1);
  }
}

template <class Store>
struct Update {
  DDH_SIMD_BODY void run(const Piece& piece, const Scalars& scalars) {
    if (piece.grad_b != nullptr)
      adamw_loop<Store, true>(piece, scalars);
    else
      adamw_loop<Store, false>(piece, scalars);
  }
};

void update_piece(const Piece& piece, const Scalars& scalars, int32_t lowp_dtype) {
  if (piece.lowp == nullptr)
    ddh::Kernel<Update<ddh::NoLowp>>::run(piece, scalars);
  else if (lowp_dtype == DDH_BF16)
    ddh::Kernel<Update<ddh::Bf16>>::run(piece, scalars);
  else
    ddh::Kernel<Update<ddh::F16>>::run(piece, scalars);
}

class AdamW final : public ddh::Optimizer {
 public:
  explicit AdamW(const ddh_create& create)
      : Optimizer(create),
        eps_(host.f64("optimizer.eps")),
        weight_decay_(host.f64("optimizer.weight_decay")),
        decay_groups_(host.flag("optimizer.decay_groups")) {
    std::array<double, 2> betas{};
    uint32_t n = 0;
    ddh::call(host.config->get_f64s, host.h, "optimizer.betas", betas.data(), 2u, &n);
    if (n != 2) ddh::fail(DDH_INVALID_ARGUMENT, "optimizer.betas has ", n, " numbers; give two, such as [0.9, 0.999]");
    for (const double beta : betas)
      if (!(beta >= 0 && beta < 1))
        ddh::fail(DDH_INVALID_ARGUMENT, "optimizer.betas holds ", beta, "; both lie in [0, 1)");
    beta1_ = betas[0];
    beta2_ = betas[1];
  }

  void attach(const ddh_model_desc& model) override { decays_ = ddh::decaying_params(model, decay_groups_); }

  [[nodiscard]] std::span<const ddh_slot_desc> slots() const noexcept override { return kSlots; }

  void update(const ddh_update_args& args) override {
    const ddh_optim_shard& shard = *args.shard;
    ddh::check_shard(shard, static_cast<uint32_t>(kSlots.size()));
    auto* const exp_avg = static_cast<float*>(shard.slots[0]);
    auto* const exp_avg_sq = static_cast<float*>(shard.slots[1]);
    auto* const lowp = static_cast<uint16_t*>(shard.lowp);
    for (uint32_t r = 0; r < shard.n_ranges; ++r) {
      const ddh_range& range = shard.ranges[r];
      const Scalars scalars = scalars_of(*args.block, range.param, args.param_steps[range.param]);
      ddh::for_each_piece(shard, range, [&](uint64_t at, uint64_t numel, const float* a, const float* b) {
        const Piece piece{
            shard.master + at, exp_avg + at, exp_avg_sq + at, a, b, lowp == nullptr ? nullptr : lowp + at, numel};
        update_piece(piece, scalars, shard.lowp_dtype);
      });
    }
  }

 private:
  [[nodiscard]] Scalars scalars_of(const ddh_step_block& block, int32_t param, int64_t param_step) const {
    const auto t = static_cast<double>(param_step);
    const double decay = decays_.at(static_cast<size_t>(param)) != 0 ? weight_decay_ : 0.0;
    Scalars s{};
    s.grad_scale = ddh::gradient_scale(block);
    s.keep = static_cast<float>(1.0 - block.lr * decay);
    s.beta2 = static_cast<float>(beta2_);
    s.weight1 = static_cast<float>(1.0 - beta1_);
    s.weight2 = static_cast<float>(1.0 - beta2_);
    s.inv_sqrt_bias2 = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2_, t)));
    s.eps = static_cast<float>(eps_);
    s.step_size = static_cast<float>(block.lr / (1.0 - std::pow(beta1_, t)));
    return s;
  }

  static constexpr std::array<ddh_slot_desc, 2> kSlots{{
      {sizeof(ddh_slot_desc), DDH_F32, "exp_avg", DDH_SLOT_PER_ELEMENT, 0},
      {sizeof(ddh_slot_desc), DDH_F32, "exp_avg_sq", DDH_SLOT_PER_ELEMENT, 0},
  }};

  double beta1_ = 0, beta2_ = 0;
  double eps_;
  double weight_decay_;
  bool decay_groups_;
  std::vector<uint8_t> decays_;  // per parameter of the model
};

}  // namespace

DDH_CXX_PLUGIN(AdamW, optimizer, "adamw", "0.1.0", "Adam with decoupled weight decay", kSchema, kNeeds,
               DDH_CAP_IN_PROCESS);
