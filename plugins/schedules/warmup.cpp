// SPDX-License-Identifier: Apache-2.0
//
// warmup: DeepSpeed's WarmupLR. The rate rises from min_lr to max_lr over warmup_steps updates, and stays.
#include "deepspeed.hpp"
#include "options.hpp"

namespace {

class Warmup final : public OverUpdates {
 public:
  using OverUpdates::OverUpdates;

  void attach(const ddh_schedule_args& args) override {
    rise_ = Rise::of(options, args.steps);
    bounds_ = Bounds::of(options, options.f64_if_given("max_lr").value_or(args.lr));
  }

 private:
  [[nodiscard]] double after(double done) const override {
    const double k = done - 1;
    if (k < 0) return bounds_.min_lr;
    return bounds_.at(k < rise_.n ? rise_(k) : 1.0);
  }

  Rise rise_;
  Bounds bounds_;
};

constexpr ddh::Option kOptions[] = {min_lr("0", "first rate"), kMaxLr, kDeepSpeedWarmupSteps, kWarmupType};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(Warmup, schedule, "warmup", "0.1.0", "DeepSpeed's WarmupLR: a rise, then a constant rate",
               ddh::kSchemaOf<kOptions>, kNeeds, DDH_CAP_IN_PROCESS);
