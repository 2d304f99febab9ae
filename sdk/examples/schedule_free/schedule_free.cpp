// SPDX-License-Identifier: Apache-2.0
//
// schedule_free: AdamW without a schedule (Defazio et al. 2024, "The Road Less Scheduled", arXiv 2405.15682), as
// AdamWScheduleFree of facebookresearch/schedule_free computes it (with its defaults r = 0 and weight_lr_power = 2). There
// are three points: z, which makes the steps; x, an average of all z, which is evaluated; and y between them, where the
// gradient g is taken. In step k:
//
//   lr_k = lr min(1, k / warmup_steps) sqrt(1 - beta2^k)          c = w / (sum of w),  w = (largest lr so far)^2
//   v = beta2 v + (1 - beta2) g^2                                 d = g / (sqrt(v) + eps) + weight_decay y
//   z = z - lr_k d               x = (1 - c) x + c z              y = (1 - beta) z + beta x
//
// The master is y. The slot `ahead` is z - y, so it begins at zero as slots do, and both steps need no x:
//
//   y = y + c ahead - lr_k (1 - beta (1 - c)) d                   ahead = (1 - c) (ahead - beta lr_k d)
//   x = y - (1 / beta - 1) ahead
//
// State: two fp32 numbers per element, and three numbers. Use it with schedule.type=constant.
//
//   ddhost --optimizer ./schedule_free.so optimizer.lr=0.0025 optimizer.warmup_steps=100 schedule.type=constant
#include <algorithm>
#include <cmath>

#include "ddh/sdk/kernels/elementwise.hpp"

namespace {

constexpr ddh::Option kOptions[] = {
    ddh::lr_option("0.0025"),
    {"beta", "number", "0.9", R"("exclusiveMinimum": 0, "maximum": 1)",
     "place of the point that takes the gradient: 1 is the average, 0 would be the point that makes the steps"},
    {"beta2", "number", "0.999", R"("minimum": 0, "maximum": 1)", "decay of the second moment; below 1"},
    {"eps", "number", "1e-8", ddh::kAtLeast0, "added to the denominator"},
    {"weight_decay", "number", "0", ddh::kAtLeast0, "this times the parameter is added to the direction"},
    {"warmup_steps", "integer", "0", ddh::kAtLeast0,
     "steps in which the rate rises to lr; they count less in the average"},
    ddh::kDecayGroupsOption,
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

struct Shown {
  DDH_SIMD_BODY void run(float* x, const float* y, const float* ahead, float back, uint64_t numel) {
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i) x[i] = y[i] - back * ahead[i];
  }
};

class ScheduleFree final : public ddh::ElementwiseOptimizer<ScheduleFree> {
 public:
  explicit ScheduleFree(const ddh_create& create)
      : ElementwiseOptimizer(create),
        beta_(options.f64("beta")),
        beta2_(options.f64("beta2")),
        eps_(options.f64("eps")),
        warmup_steps_(static_cast<double>(options.i64("warmup_steps"))) {
    if (beta2_ == 1)
      ddh::fail(DDH_INVALID_ARGUMENT, options.key("beta2"), " is 1, with which the second moment stays 0; give less");
  }
  static constexpr auto kSlots = ddh::slots("ahead", "exp_avg_sq");

  struct Formula {
    float decay, beta2, weight2, eps, pull, step, keep, lead;
    DDH_SIMD_INLINE float operator()(float y, float g, float& ahead, float& v) const {
      v = beta2 * v + (weight2 * g) * g;
      const float d = g / (std::sqrt(v) + eps) + decay * y;
      const float moved = y + pull * ahead - step * d;
      ahead = keep * (ahead - lead * d);
      return moved;
    }
  };

  [[nodiscard]] Formula formula(const ddh::ParamStep& step) const {
    const double lr = step.lr * factor(), c = share_;
    return {ddh::f32(step.weight_decay),
            ddh::f32(beta2_),
            ddh::f32(1.0 - beta2_),
            ddh::f32(eps_),
            ddh::f32(c),
            ddh::f32(lr * (1.0 - beta_ * (1.0 - c))),
            ddh::f32(1.0 - c),
            ddh::f32(beta_ * lr)};
  }

  // The numbers of the step, once on every rank: they depend on the rates of all steps so far.
  void advance(const ddh_step_block& block) override {
    steps_ += 1;
    largest_lr_ = std::max(largest_lr_, block.lr * factor());
    const double weight = largest_lr_ * largest_lr_;
    weight_sum_ += weight;
    share_ = weight_sum_ > 0 ? weight / weight_sum_ : 0;
  }
  [[nodiscard]] std::vector<Number> numbers() override {
    return {{"steps", &steps_}, {"largest_lr", &largest_lr_}, {"weight_sum", &weight_sum_}};
  }

  [[nodiscard]] bool shows() const noexcept override { return true; }
  void show(const ddh_optim_shard& shard, float* dst) const override {
    for (uint32_t r = 0; r < shard.n_ranges; ++r) {
      const uint64_t at = shard.ranges[r].flat_offset;
      ddh::Kernel<Shown>::run(dst + at, shard.master + at, static_cast<const float*>(shard.slots[0]) + at,
                              ddh::f32(1.0 / beta_ - 1.0), shard.ranges[r].numel);
    }
  }

 private:
  // Of the rate: the warm-up and the correction of the second moment.
  [[nodiscard]] double factor() const {
    const double warm = steps_ < warmup_steps_ ? steps_ / warmup_steps_ : 1.0;
    return warm * std::sqrt(1.0 - std::pow(beta2_, steps_));
  }

  const double beta_, beta2_, eps_, warmup_steps_;
  double steps_ = 0, largest_lr_ = 0, weight_sum_ = 0;
  double share_ = 0;  // c of this step
};

}  // namespace

DDH_CXX_PLUGIN(ScheduleFree, optimizer, "schedule_free", "0.1.0", "AdamW without a schedule, by averaging",
               ddh::kSchemaOf<kOptions>, kNeeds, DDH_CAP_IN_PROCESS | DDH_CAP_CLIP_VALUE);
