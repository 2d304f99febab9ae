// SPDX-License-Identifier: Apache-2.0
//
// range_test: DeepSpeed's LRRangeTest. The rate begins at min_lr, and rises by rise_rate x min_lr in rise_steps updates, for
// ever: a short run with it shows from which rate on the loss no longer falls.
#include "deepspeed.hpp"
#include "options.hpp"

namespace {

class RangeTest final : public OverUpdates {
 public:
  explicit RangeTest(const ddh_create& create)
      : OverUpdates(create),
        min_lr_(options.f64("min_lr")),
        steps_(options.f64("rise_steps")),
        rate_(options.f64("rise_rate")),
        is_staircase_(options.flag("staircase")) {}

  void attach(const ddh_schedule_args& /*args*/) override {
  }  // neither the optimizer's rate nor the run's length counts

 private:
  [[nodiscard]] double after(double done) const override {
    const double interval = is_staircase_ ? std::floor(done / steps_) : done / steps_;
    return min_lr_ * (1 + rate_ * interval);
  }

  const double min_lr_, steps_, rate_;
  const bool is_staircase_;
};

constexpr ddh::Option kOptions[] = {
    min_lr("0.001", "first rate"),
    {"rise_steps", "integer", "2000", R"("minimum": 1, "x-unit": "steps")", "updates of one rise"},
    {"rise_rate", "number", "1", ddh::kAtLeast0, "what min_lr is multiplied by and added in each rise"},
    {"staircase", "boolean", "false", "", "true: the rate changes at the end of each rise alone"},
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(RangeTest, schedule, "range_test", "0.1.0", "DeepSpeed's LRRangeTest: a rate that rises for ever",
               ddh::kSchemaOf<kOptions>, kNeeds, DDH_CAP_IN_PROCESS);
