// SPDX-License-Identifier: Apache-2.0
//
// warmup_decay: DeepSpeed's WarmupDecayLR. As warmup, then a straight line down to min_lr at decay_steps.
#include "deepspeed.hpp"
#include "options.hpp"

namespace {

class WarmupDecay final : public OverUpdates {
 public:
  using OverUpdates::OverUpdates;

  void attach(const ddh_schedule_args& args) override {
    const auto given = options.f64_if_given("decay_steps");
    check_decay_follows_warmup(options, given, args.steps);
    rise_ = Rise::of(options, args.steps);
    bounds_ = Bounds::of(options, options.f64_if_given("max_lr").value_or(args.lr));
    end_ = given.value_or(static_cast<double>(args.steps));
  }

 private:
  [[nodiscard]] double after(double done) const override {
    const double k = done - 1;
    if (k < 0) return bounds_.min_lr;
    return bounds_.at(k < rise_.n ? rise_(k) : std::max(0.0, (end_ - k) / std::max(1.0, end_ - rise_.n)));
  }

  Rise rise_;
  Bounds bounds_;
  double end_ = 0;
};

constexpr ddh::Option kOptions[] = {
    min_lr("0", "first and last rate"), kMaxLr, kDeepSpeedWarmupSteps, kWarmupType, kDecaySteps,
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(WarmupDecay, schedule, "warmup_decay", "0.1.0", "DeepSpeed's WarmupDecayLR: a rise, then a line down",
               ddh::kSchemaOf<kOptions>, kNeeds, DDH_CAP_IN_PROCESS);
