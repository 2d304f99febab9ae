// SPDX-License-Identifier: Apache-2.0
//
// cycle: DeepSpeed's OneCycle. From min_lr up to max_lr and back, then min_lr / (1 + cycle_decay_rate i), where i is the
// number of updates since then, divided by cycle_decay_every.
#include "deepspeed.hpp"
#include "options.hpp"

namespace {

class Cycle final : public OverUpdates {
 public:
  explicit Cycle(const ddh_create& create)
      : OverUpdates(create),
        up_(options.f64("cycle_up_steps")),
        down_(options.f64_if_given("cycle_down_steps").value_or(up_)),
        every_(options.f64("cycle_decay_every")),
        rate_(options.f64("cycle_decay_rate")) {}

  void attach(const ddh_schedule_args& args) override {
    bounds_ = Bounds::of(options, options.f64_if_given("max_lr").value_or(args.lr));
  }

 private:
  // The position in the cycle is k + 1 = done, not k: only the first update runs at min_lr.
  [[nodiscard]] double after(double done) const override {
    const double total = up_ + down_;
    if (done <= up_) return bounds_.at(done / up_);
    if (done <= total) return bounds_.at((total - done) / down_);
    return every_ == 0 ? bounds_.min_lr : bounds_.min_lr / (1 + rate_ * ((done - total) / every_));
  }

  const double up_, down_, every_, rate_;
  Bounds bounds_;
};

constexpr ddh::Option kOptions[] = {
    min_lr("", "first and lowest rate"),
    kMaxLr,
    kCycleMomentum,
    {"cycle_up_steps", "integer", "2000", R"("minimum": 1, "x-unit": "steps")", "updates from min_lr to max_lr"},
    {"cycle_down_steps", "integer|null", "null", R"("minimum": 1, "x-unit": "steps")",
     "updates from max_lr to min_lr; null: cycle_up_steps"},
    {"cycle_decay_every", "integer", "0", R"("minimum": 0, "x-unit": "steps")",
     "after the cycle: min_lr / (1 + cycle_decay_rate * updates / this); 0: no decay"},
    {"cycle_decay_rate", "number", "0", ddh::kAtLeast0, "see cycle_decay_every"},
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(Cycle, schedule, "cycle", "0.1.0", "DeepSpeed's OneCycle: up, down, then a slow decay",
               ddh::kSchemaOf<kOptions>, kNeeds, DDH_CAP_IN_PROCESS);
