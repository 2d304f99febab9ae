// SPDX-License-Identifier: Apache-2.0
//
// sgd: gradient descent with momentum and coupled weight decay, as torch.optim.SGD does it:
//
//   g += weight_decay p
//   buf = g (first update), momentum buf + (1 - dampening) g (later)          only with momentum
//   p -= lr (g + momentum buf) (nesterov), lr buf, or lr g (no momentum)
//
// State: one fp32 number per parameter, none without momentum. One pass: 20 bytes per parameter, 12 without momentum.

#include "ddh/sdk/lowp.hpp"
#include "ddh/sdk/optimizer.hpp"

namespace {

constexpr const char* kSchema = R"({
  "type": "object",
  "properties": {
    "lr": {"type": "number", "minimum": 0, "default": 1e-3,
           "description": "learning rate; the schedule multiplies it"},
    "momentum": {"type": "number", "minimum": 0, "default": 0, "description": "0: no momentum and no state"},
    "dampening": {"type": "number", "default": 0, "description": "takes this part off a gradient that enters momentum"},
    "nesterov": {"type": "boolean", "default": false, "description": "needs momentum, and no dampening"},
    "weight_decay": {"type": "number", "minimum": 0, "default": 0, "description": "added to the gradient"},
    "decay_groups": {"type": "boolean", "default": true,
                     "description": "true: parameters that the model marks as no_decay get none; false: all decay"}
  }
})";
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

// The scalars of one parameter's update.
struct Scalars {
  float grad_scale;  // unscale and clip
  float decay;
  float momentum;
  float weight;  // 1 - dampening; 1 at the first update, where momentum is 0
  float lr;
};

// One piece: numel elements of every array. grad_b and lowp may be null.
struct Piece {
  float* param;
  float* buffer;  // null without momentum
  const float* grad_a;
  const float* grad_b;
  uint16_t* lowp;
  uint64_t numel;
};

enum class Mode { plain, momentum, nesterov };

template <Mode kMode, class Store, bool kTwoSources, bool kFirst>
DDH_SIMD_INLINE void sgd_loop(const Piece& piece, const Scalars& scalars) {
  const Scalars s = scalars;
  float* const p = piece.param;
  float* const buffer = piece.buffer;
  const float* const a = piece.grad_a;
  const float* const b = piece.grad_b;
  uint16_t* const lowp = piece.lowp;
  const uint64_t numel = piece.numel;
  DDH_SIMD_LOOP
  for (uint64_t i = 0; i < numel; ++i) {
    const float sum = kTwoSources ? a[i] + b[i] : a[i];
    const float g = sum * s.grad_scale + s.decay * p[i];
    float direction = g;
    if constexpr (kMode != Mode::plain) {
      const float moved = kFirst ? g : s.momentum * buffer[i] + s.weight * g;
      buffer[i] = moved;
      direction = kMode == Mode::nesterov ? g + s.momentum * moved : moved;
    }
    const float p1 = p[i] - s.lr * direction;
    p[i] = p1;
    Store::store(lowp, i, p1);
  }
}

template <Mode kMode, class Store, bool kFirst>
struct Update {
  DDH_SIMD_BODY void run(const Piece& piece, const Scalars& scalars) {
    if (piece.grad_b != nullptr)
      sgd_loop<kMode, Store, true, kFirst>(piece, scalars);
    else
      sgd_loop<kMode, Store, false, kFirst>(piece, scalars);
  }
};

template <Mode kMode, bool kFirst>
void update_piece(const Piece& piece, const Scalars& scalars, int32_t lowp_dtype) {
  if (piece.lowp == nullptr)
    ddh::Kernel<Update<kMode, ddh::NoLowp, kFirst>>::run(piece, scalars);
  else if (lowp_dtype == DDH_BF16)
    ddh::Kernel<Update<kMode, ddh::Bf16, kFirst>>::run(piece, scalars);
  else
    ddh::Kernel<Update<kMode, ddh::F16, kFirst>>::run(piece, scalars);
}

class Sgd final : public ddh::Optimizer {
 public:
  explicit Sgd(const ddh_create& create)
      : Optimizer(create),
        momentum_(options.f64("momentum")),
        dampening_(options.f64("dampening")),
        weight_decay_(options.f64("weight_decay")),
        decay_groups_(options.flag("decay_groups")) {
    const bool nesterov = options.flag("nesterov");
    if (nesterov && (momentum_ <= 0 || dampening_ != 0))
      ddh::fail(DDH_INVALID_ARGUMENT, options.key("nesterov"), " needs momentum and no dampening, but momentum is ",
                momentum_, " and dampening ", dampening_, "; set ", options.key("momentum"), " above 0 and ",
                options.key("dampening"), " to 0");
    mode_ = nesterov ? Mode::nesterov : momentum_ > 0 ? Mode::momentum : Mode::plain;
  }

  void attach(const ddh_model_desc& model) override { decays_ = ddh::decaying_params(model, decay_groups_); }

  [[nodiscard]] std::span<const ddh_slot_desc> slots() const noexcept override {
    return std::span(kSlots).first(mode_ == Mode::plain ? 0 : 1);
  }

  void update(const ddh_update_args& args) override {
    const ddh_optim_shard& shard = *args.shard;
    ddh::check_shard(shard, static_cast<uint32_t>(slots().size()));
    auto* const buffer = mode_ == Mode::plain ? nullptr : static_cast<float*>(shard.slots[0]);
    auto* const lowp = static_cast<uint16_t*>(shard.lowp);
    for (uint32_t r = 0; r < shard.n_ranges; ++r) {
      const ddh_range& range = shard.ranges[r];
      const bool first = args.param_steps[range.param] == 1;
      const Scalars scalars = scalars_of(*args.block, range.param);
      ddh::for_each_piece(*args.block, shard, range, [&](uint64_t at, uint64_t numel, const float* a, const float* b) {
        const Piece piece{shard.master + at,
                          buffer == nullptr ? nullptr : buffer + at,
                          a,
                          b,
                          lowp == nullptr ? nullptr : lowp + at,
                          numel};
        dispatch(piece, scalars, shard.lowp_dtype, first);
      });
    }
  }

 private:
  void dispatch(const Piece& piece, const Scalars& scalars, int32_t lowp_dtype, bool first) const {
    if (mode_ == Mode::plain)
      update_piece<Mode::plain, false>(piece, scalars, lowp_dtype);
    else if (mode_ == Mode::momentum)
      first ? update_piece<Mode::momentum, true>(piece, scalars, lowp_dtype)
            : update_piece<Mode::momentum, false>(piece, scalars, lowp_dtype);
    else
      first ? update_piece<Mode::nesterov, true>(piece, scalars, lowp_dtype)
            : update_piece<Mode::nesterov, false>(piece, scalars, lowp_dtype);
  }

  [[nodiscard]] Scalars scalars_of(const ddh_step_block& block, int32_t param) const {
    Scalars s{};
    s.grad_scale = ddh::gradient_scale(block);
    s.decay = decays_.at(static_cast<size_t>(param)) != 0 ? static_cast<float>(weight_decay_) : 0.0f;
    s.momentum = static_cast<float>(momentum_);
    s.weight = static_cast<float>(1.0 - dampening_);
    s.lr = static_cast<float>(block.lr);
    return s;
  }

  static constexpr std::array<ddh_slot_desc, 1> kSlots{{
      {sizeof(ddh_slot_desc), DDH_F32, "momentum_buffer", DDH_SLOT_PER_ELEMENT, 0},
  }};

  double momentum_;
  double dampening_;
  double weight_decay_;
  bool decay_groups_;
  Mode mode_ = Mode::plain;
  std::vector<uint8_t> decays_;  // per parameter of the model
};

}  // namespace

DDH_CXX_PLUGIN(Sgd, optimizer, "sgd", "0.1.0", "gradient descent with momentum", kSchema, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_CLIP_VALUE);
