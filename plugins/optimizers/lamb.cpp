// SPDX-License-Identifier: Apache-2.0
//
// lamb: Adam's direction, scaled per parameter to the norm of the parameter (You et al. 2020, "Large Batch Optimization
// for Deep Learning: Training BERT in 76 minutes", algorithm 2), with the bias correction inside the direction, as in
// the paper and in NVIDIA's LAMB:
//
//   m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
//   u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay p          t = updates of this parameter
//   p -= lr trust u          trust = |p| / |u|, clamped to [min_coeff, max_coeff]; 1 if |p| or |u| is 0
//
// State: two fp32 numbers per element. Two passes, because the norms are of whole parameters: prepare updates m and v
// and writes p and u for the norms, 24 bytes per element; update computes u again, 16 bytes.
#include "lamb.hpp"

namespace {

constexpr ddh::Option kOptions[] = {
    ddh::lr_option("1e-3"),
    ddh::two_rates_option("betas", "[0.9, 0.999]", "decay of the first and second moment"),
    {"eps", "number", "1e-8", ddh::kAtLeast0, "added to the denominator"},
    {"weight_decay", "number", "0", ddh::kAtLeast0, "this times the parameter is added to the direction"},
    {"bias_correction", "boolean", "true", "", "divide the moments by 1 - beta^t"},
    {"max_coeff", "number", "10", ddh::kAbove0, "largest trust ratio"},
    {"min_coeff", "number", "0.01", ddh::kAtLeast0, "smallest trust ratio"},
    ddh::kDecayGroupsOption,
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

using lamb::Prepare;
using lamb::Scalars;
using lamb::Update;

class Lamb final : public ddh::DecayingOptimizer {
 public:
  explicit Lamb(const ddh_create& create)
      : DecayingOptimizer(create),
        betas_(ddh::betas(options, "betas")),
        eps_(options.f64("eps")),
        bias_correction_(options.flag("bias_correction")),
        max_coeff_(options.f64("max_coeff")),
        min_coeff_(options.f64("min_coeff")) {
    if (min_coeff_ > max_coeff_)
      ddh::fail(DDH_INVALID_ARGUMENT, options.key("min_coeff"), " is ", min_coeff_, " and ", options.key("max_coeff"),
                " ", max_coeff_, "; the trust ratio lies between them, so give a smaller min_coeff");
  }

  [[nodiscard]] std::span<const ddh_slot_desc> slots() const noexcept override { return kSlots; }
  [[nodiscard]] int32_t needs(int32_t) const noexcept override { return DDH_NEEDS_PARAM_NORM; }
  [[nodiscard]] uint32_t sum_count() const noexcept override { return kSums; }

  void prepare(const ddh_prepare_args& args) override {
    const ddh_optim_shard& shard = *args.update->shard;
    const ddh_step_block& block = *args.update->block;
    ddh::check_shard(shard, static_cast<uint32_t>(kSlots.size()));
    const ddh_range& range = shard.ranges[0];
    const Prepare formula{scalars_of(step_of(*args.update, range.param))};
    if (!kernels_.show(host, *args.update, range, formula, args.values[kParam], args.values[kUpdate]))
      ddh::show_range(block, shard, range, formula, args.values[kParam], args.values[kUpdate]);
  }

  void update(const ddh_update_args& args) override {
    const ddh_optim_shard& shard = *args.shard;
    ddh::check_shard(shard, static_cast<uint32_t>(kSlots.size()));
    if (args.param_sums == nullptr)
      ddh::fail(DDH_FAILED_PRECONDITION, "lamb needs sums over whole parameters, but the update has none");
    for (uint32_t r = 0; r < shard.n_ranges; ++r) {
      const ddh_range& range = shard.ranges[r];
      Scalars scalars = scalars_of(step_of(args, range.param));
      scalars.step_size = ddh::f32(args.block->lr * trust(args.param_sums + kSums * static_cast<size_t>(range.param)));
      const ddh::ElementPiece piece = ddh::piece_at(shard, moments(shard), range.flat_offset, range.numel);
      if (!kernels_.move(host, args, range, Update{scalars}, piece.state[0], piece.state[1]))
        ddh::move_piece(shard, piece, Update{scalars});
    }
  }

 private:
  enum : size_t { kParam, kUpdate, kSums };  // the values whose squares are summed
  static constexpr auto kSlots = ddh::slots("exp_avg", "exp_avg_sq");

  static std::array<float*, 2> moments(const ddh_optim_shard& shard) {
    return {static_cast<float*>(shard.slots[0]), static_cast<float*>(shard.slots[1])};
  }

  [[nodiscard]] double trust(const double* sums) const {
    const double param = std::sqrt(sums[kParam]), update = std::sqrt(sums[kUpdate]);
    if (param == 0 || update == 0) return 1;
    const double ratio = param / update;
    return ratio > max_coeff_ ? max_coeff_ : ratio < min_coeff_ ? min_coeff_ : ratio;  // a NaN stays a NaN
  }

  [[nodiscard]] Scalars scalars_of(const ddh::ParamStep& step) const {
    const auto t = static_cast<double>(step.t);
    Scalars s{};
    s.decay = ddh::f32(step.weight_decay);
    s.beta2 = ddh::f32(betas_.second);
    s.weight1 = ddh::f32(1.0 - betas_.first);
    s.weight2 = ddh::f32(1.0 - betas_.second);
    s.inv_bias1 = bias_correction_ ? ddh::f32(1.0 / (1.0 - std::pow(betas_.first, t))) : 1.0f;
    s.inv_sqrt_bias2 = bias_correction_ ? ddh::f32(1.0 / std::sqrt(1.0 - std::pow(betas_.second, t))) : 1.0f;
    s.eps = ddh::f32(eps_);
    return s;
  }

  const ddh::Betas betas_;
  const double eps_;
  const bool bias_correction_;
  const double max_coeff_, min_coeff_;
  const ddh::ElementKernels kernels_{DDH_KERNEL_IMAGE(lamb)};
};

}  // namespace

DDH_CXX_PLUGIN(Lamb, optimizer, "lamb", "0.1.0", "Adam scaled by the norm of each parameter", ddh::kSchemaOf<kOptions>,
               kNeeds, DDH_CAP_IN_PROCESS | DDH_CAP_CLIP_VALUE | kKernelCaps, .wants = kKernelWants);
