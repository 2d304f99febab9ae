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
    const auto given = f64_if_given("decay_steps");
    check_decay_follows_warmup(options, given);
    rise_ = Rise::of(options);
    bounds_ = Bounds::of(options, f64_if_given("max_lr").value_or(args.lr));
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

constexpr const char* kSchema = R"({"properties": {)" MIN_LR(
    R"("default": 0, )", "first and last rate") "," MAX_LR "," DEEPSPEED_WARMUP "," DECAY_STEPS
                                                R"(}, "x-aliases": {)" WARMUP_ALIASES "," DECAY_ALIASES
                                                "," MIN_LR_ALIASES "," MAX_LR_ALIASES "}}";
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(WarmupDecay, schedule, "warmup_decay", "0.1.0", "DeepSpeed's WarmupDecayLR: a rise, then a line down",
               kSchema, kNeeds, DDH_CAP_IN_PROCESS);
