// SPDX-License-Identifier: Apache-2.0
//
// inverse_sqrt: a linear warm-up, then lr sqrt(t / (steps since the warm-up + t)) with t = timescale. It never ends.
#include <cmath>

#include "decay.hpp"
#include "options.hpp"

namespace {

class InverseSqrt final : public WithWarmup {
 public:
  using WithWarmup::WithWarmup;

  void attach(const ddh_schedule_args& args) override {
    constexpr double kNoWarmupTimescale = 10000;  // default without a warm-up
    WithWarmup::attach(args);
    const double given = options.f64_if_given("timescale").value_or(warmup_);
    timescale_ = given > 0 ? given : kNoWarmupTimescale;
  }

 private:
  [[nodiscard]] double after_warmup(double done) const override {
    return lr_ * std::sqrt(timescale_ / (done - warmup_ + timescale_));
  }

  double timescale_ = 0;
};

constexpr ddh::Option kOptions[] = {
    kWarmupSteps,
    kWarmupFromZero,
    {"timescale", "integer|null", "null", R"("minimum": 1, "x-unit": "steps")",
     "the rate has halved after 3 times this many steps; null: warmup_steps, or 10000 if these are 0"},
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(InverseSqrt, schedule, "inverse_sqrt", "0.1.0", "warm-up, then the inverse square root",
               ddh::kSchemaOf<kOptions>, kNeeds, DDH_CAP_IN_PROCESS);
