// SPDX-License-Identifier: Apache-2.0
//
// adagrad: steps that shrink with the sum of squared gradients (Duchi, Hazan and Singer 2011), as torch.optim.Adagrad
// does it:
//
//   g += weight_decay p
//   sum += g^2                                 begins at initial_accumulator_value
//   p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(sum) + eps)          t = updates of this parameter
//
// State: one fp32 number per parameter. One pass: 20 bytes per parameter.
#include <cmath>

#include "ddh/sdk/lowp.hpp"
#include "ddh/sdk/optimizer.hpp"

namespace {

constexpr const char* kSchema = R"({
  "type": "object",
  "properties": {
    "lr": {"type": "number", "minimum": 0, "default": 1e-2,
           "description": "learning rate; the schedule multiplies it"},
    "lr_decay": {"type": "number", "minimum": 0, "default": 0,
                 "description": "the learning rate is divided by 1 + lr_decay times the updates so far"},
    "eps": {"type": "number", "minimum": 0, "default": 1e-10, "description": "added to the denominator"},
    "initial_accumulator_value": {"type": "number", "minimum": 0, "default": 0,
                                  "description": "what the sums of squares begin with"},
    "weight_decay": {"type": "number", "minimum": 0, "default": 0, "description": "L2: added to the gradient"},
    "decay_groups": {"type": "boolean", "default": true,
                     "description": "true: parameters that the model marks as no_decay get none; false: all decay"}
  }
})";
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

// The scalars of one parameter's update.
struct Scalars {
  float grad_scale;  // unscale and clip
  float decay;
  float initial;  // of the sum, at the first update
  float eps;
  float lr;
};

// One piece: numel elements of every array. grad_b and lowp may be null.
struct Piece {
  float* param;
  float* sum;
  const float* grad_a;
  const float* grad_b;
  uint16_t* lowp;
  uint64_t numel;
};

template <class Store, bool kTwoSources, bool kFirst>
DDH_SIMD_INLINE void adagrad_loop(const Piece& piece, const Scalars& scalars) {
  const Scalars s = scalars;
  float* const p = piece.param;
  float* const sums = piece.sum;
  const float* const a = piece.grad_a;
  const float* const b = piece.grad_b;
  uint16_t* const lowp = piece.lowp;
  const uint64_t numel = piece.numel;
  DDH_SIMD_LOOP
  for (uint64_t i = 0; i < numel; ++i) {
    const float both = kTwoSources ? a[i] + b[i] : a[i];
    const float g = both * s.grad_scale + s.decay * p[i];
    const float sum = (kFirst ? s.initial : sums[i]) + g * g;
    const float p1 = p[i] - s.lr * (g / (std::sqrt(sum) + s.eps));
    sums[i] = sum;
    p[i] = p1;
    Store::store(lowp, i, p1);
  }
}

template <class Store, bool kFirst>
struct Update {
  DDH_SIMD_BODY void run(const Piece& piece, const Scalars& scalars) {
    if (piece.grad_b != nullptr)
      adagrad_loop<Store, true, kFirst>(piece, scalars);
    else
      adagrad_loop<Store, false, kFirst>(piece, scalars);
  }
};

class Adagrad final : public ddh::Optimizer {
 public:
  explicit Adagrad(const ddh_create& create)
      : Optimizer(create),
        lr_decay_(options.f64("lr_decay")),
        eps_(options.f64("eps")),
        initial_(options.f64("initial_accumulator_value")),
        weight_decay_(options.f64("weight_decay")),
        decay_groups_(options.flag("decay_groups")) {}

  void attach(const ddh_model_desc& model) override { decays_ = ddh::decaying_params(model, decay_groups_); }

  [[nodiscard]] std::span<const ddh_slot_desc> slots() const noexcept override { return kSlots; }

  void update(const ddh_update_args& args) override {
    const ddh_optim_shard& shard = *args.shard;
    ddh::check_shard(shard, static_cast<uint32_t>(kSlots.size()));
    auto* const sum = static_cast<float*>(shard.slots[0]);
    auto* const lowp = static_cast<uint16_t*>(shard.lowp);
    for (uint32_t r = 0; r < shard.n_ranges; ++r) {
      const int64_t t = args.param_steps[shard.ranges[r].param];
      const Scalars scalars = scalars_of(*args.block, shard.ranges[r].param, t);
      ddh::for_each_piece(
          *args.block, shard, shard.ranges[r], [&](uint64_t at, uint64_t numel, const float* a, const float* b) {
            const Piece piece{shard.master + at, sum + at, a, b, lowp == nullptr ? nullptr : lowp + at, numel};
            ddh::with_lowp(lowp, shard.lowp_dtype, [&](auto store) {
              t == 1 ? ddh::Kernel<Update<decltype(store), true>>::run(piece, scalars)
                     : ddh::Kernel<Update<decltype(store), false>>::run(piece, scalars);
            });
          });
    }
  }

 private:
  [[nodiscard]] Scalars scalars_of(const ddh_step_block& block, int32_t param, int64_t t) const {
    Scalars s{};
    s.grad_scale = ddh::gradient_scale(block);
    s.decay = decays_.at(static_cast<size_t>(param)) != 0 ? static_cast<float>(weight_decay_) : 0.0f;
    s.initial = static_cast<float>(initial_);
    s.eps = static_cast<float>(eps_);
    s.lr = static_cast<float>(block.lr / (1.0 + static_cast<double>(t - 1) * lr_decay_));
    return s;
  }

  static constexpr std::array<ddh_slot_desc, 1> kSlots{{
      {sizeof(ddh_slot_desc), DDH_F32, "sum", DDH_SLOT_PER_ELEMENT, 0},
  }};

  const double lr_decay_;
  const double eps_;
  const double initial_;
  const double weight_decay_;
  const bool decay_groups_;
  std::vector<uint8_t> decays_;  // per parameter of the model
};

}  // namespace

DDH_CXX_PLUGIN(Adagrad, optimizer, "adagrad", "0.1.0", "steps by the sum of squared gradients", kSchema, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_CLIP_VALUE);
