// SPDX-License-Identifier: Apache-2.0
//
// lion: the sign of an interpolated momentum (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms"), as
// the paper's authors publish it:
//
//   p -= lr weight_decay p
//   p -= lr sign(beta1 m + (1 - beta1) g)          m = beta2 m + (1 - beta2) g
//
// State: one fp32 number per parameter. One pass: 20 bytes per parameter. The sign of 0 is 0, of a NaN the NaN.
#include "ddh/sdk/lowp.hpp"
#include "ddh/sdk/optimizer.hpp"

namespace {

constexpr const char* kSchema = R"({
  "type": "object",
  "properties": {
    "lr": {"type": "number", "minimum": 0, "default": 1e-4,
           "description": "learning rate; the schedule multiplies it. A third to a tenth of adamw's"},
    "betas": {"type": "array", "items": {"type": "number", "minimum": 0}, "minItems": 2, "maxItems": 2,
              "default": [0.9, 0.99], "description": "share of the momentum in the sign, and its decay"},
    "weight_decay": {"type": "number", "minimum": 0, "default": 0,
                     "description": "decoupled weight decay. Three to ten times adamw's"},
    "decay_groups": {"type": "boolean", "default": true,
                     "description": "true: parameters that the model marks as no_decay get none; false: all decay"}
  }
})";
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

// The scalars of one parameter's update.
struct Scalars {
  float grad_scale;  // unscale and clip
  float keep;        // 1 - lr * weight_decay
  float weight1;     // 1 - beta1
  float weight2;     // 1 - beta2
  float lr;
};

// One piece: numel elements of every array. grad_b and lowp may be null.
struct Piece {
  float* param;
  float* exp_avg;
  const float* grad_a;
  const float* grad_b;
  uint16_t* lowp;
  uint64_t numel;
};

template <class Store, bool kTwoSources>
DDH_SIMD_INLINE void lion_loop(const Piece& piece, const Scalars& scalars) {
  const Scalars s = scalars;
  float* const p = piece.param;
  float* const m = piece.exp_avg;
  const float* const a = piece.grad_a;
  const float* const b = piece.grad_b;
  uint16_t* const lowp = piece.lowp;
  const uint64_t numel = piece.numel;
  DDH_SIMD_LOOP
  for (uint64_t i = 0; i < numel; ++i) {
    const float sum = kTwoSources ? a[i] + b[i] : a[i];
    const float away = sum * s.grad_scale - m[i];
    const float c = m[i] + s.weight1 * away;
    const float sign = c > 0.0f ? 1.0f : c < 0.0f ? -1.0f : c;
    const float p1 = p[i] * s.keep - s.lr * sign;
    m[i] = m[i] + s.weight2 * away;
    p[i] = p1;
    Store::store(lowp, i, p1);
  }
}

template <class Store>
struct Update {
  DDH_SIMD_BODY void run(const Piece& piece, const Scalars& scalars) {
    if (piece.grad_b != nullptr)
      lion_loop<Store, true>(piece, scalars);
    else
      lion_loop<Store, false>(piece, scalars);
  }
};

class Lion final : public ddh::Optimizer {
 public:
  explicit Lion(const ddh_create& create)
      : Optimizer(create),
        betas_(ddh::betas(options, "betas")),
        weight_decay_(options.f64("weight_decay")),
        decay_groups_(options.flag("decay_groups")) {}

  void attach(const ddh_model_desc& model) override { decays_ = ddh::decaying_params(model, decay_groups_); }

  [[nodiscard]] std::span<const ddh_slot_desc> slots() const noexcept override { return kSlots; }

  void update(const ddh_update_args& args) override {
    const ddh_optim_shard& shard = *args.shard;
    ddh::check_shard(shard, static_cast<uint32_t>(kSlots.size()));
    auto* const exp_avg = static_cast<float*>(shard.slots[0]);
    auto* const lowp = static_cast<uint16_t*>(shard.lowp);
    for (uint32_t r = 0; r < shard.n_ranges; ++r) {
      const Scalars scalars = scalars_of(*args.block, shard.ranges[r].param);
      ddh::for_each_piece(
          *args.block, shard, shard.ranges[r], [&](uint64_t at, uint64_t numel, const float* a, const float* b) {
            const Piece piece{shard.master + at, exp_avg + at, a, b, lowp == nullptr ? nullptr : lowp + at, numel};
            ddh::with_lowp(lowp, shard.lowp_dtype,
                           [&](auto store) { ddh::Kernel<Update<decltype(store)>>::run(piece, scalars); });
          });
    }
  }

 private:
  [[nodiscard]] Scalars scalars_of(const ddh_step_block& block, int32_t param) const {
    const double decay = decays_.at(static_cast<size_t>(param)) != 0 ? weight_decay_ : 0.0;
    Scalars s{};
    s.grad_scale = ddh::gradient_scale(block);
    s.keep = static_cast<float>(1.0 - block.lr * decay);
    s.weight1 = static_cast<float>(1.0 - betas_.first);
    s.weight2 = static_cast<float>(1.0 - betas_.second);
    s.lr = static_cast<float>(block.lr);
    return s;
  }

  static constexpr std::array<ddh_slot_desc, 1> kSlots{{
      {sizeof(ddh_slot_desc), DDH_F32, "exp_avg", DDH_SLOT_PER_ELEMENT, 0},
  }};

  const ddh::Betas betas_;
  const double weight_decay_;
  const bool decay_groups_;
  std::vector<uint8_t> decays_;  // per parameter of the model
};

}  // namespace

DDH_CXX_PLUGIN(Lion, optimizer, "lion", "0.1.0", "sign of an interpolated momentum", kSchema, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_CLIP_VALUE);
