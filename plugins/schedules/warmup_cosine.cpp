// SPDX-License-Identifier: Apache-2.0
//
// warmup_cosine: DeepSpeed's WarmupCosineLR. A rise to the optimizer's lr, then a cosine down to min_lr_ratio of it.
#include <numbers>

#include "deepspeed.hpp"
#include "options.hpp"

namespace {

class WarmupCosine final : public OverUpdates {
 public:
  explicit WarmupCosine(const ddh_create& create)
      : OverUpdates(create), first_(options.f64("warmup_min_ratio")), last_(options.f64("min_lr_ratio")) {}

  void attach(const ddh_schedule_args& args) override {
    const auto given = options.f64_if_given("decay_steps");
    check_decay_follows_warmup(options, given, args.steps);
    lr_ = args.lr;
    rise_ = Rise::of(options, args.steps);
    end_ = given.value_or(static_cast<double>(args.steps));
  }

 private:
  [[nodiscard]] double after(double done) const override {
    const double k = done - 1;
    if (k < 0) return 0.0;  // DeepSpeed gives 0 here, not warmup_min_ratio
    if (k < rise_.n) return lr_ * (first_ + rise_(k) * (1 - first_));
    const double progress = std::min(1.0, (k - rise_.n + 1) / std::max(1.0, end_ - rise_.n));
    return lr_ * (last_ + (1 - last_) * ((1 + std::cos(std::numbers::pi * progress)) / 2));
  }

  const double first_, last_;  // ratios
  Rise rise_;
  double lr_ = 0, end_ = 0;
};

constexpr ddh::Option kOptions[] = {
    {"warmup_min_ratio", "number", "0", R"("minimum": 0, "maximum": 1)",
     "first rate of the warm-up, divided by the optimizer's lr"},
    kDeepSpeedWarmupSteps,
    kWarmupType,
    kDecaySteps,
    min_lr_ratio("1e-4"),
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(WarmupCosine, schedule, "warmup_cosine", "0.1.0", "DeepSpeed's WarmupCosineLR: a rise, then a cosine",
               ddh::kSchemaOf<kOptions>, kNeeds, DDH_CAP_IN_PROCESS);
