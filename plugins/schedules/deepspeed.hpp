// SPDX-License-Identifier: Apache-2.0
//
// The common part of DeepSpeed's schedulers (deepspeed/runtime/lr_schedules.py), with the same values. They count
// updates, so a skipped step does not change the rate. DeepSpeed advances its scheduler after the optimizer, and the
// first call sets k = 0. So after `done` updates k is done - 1, and the first two updates run at the lowest rate.
#pragma once

#include <algorithm>
#include <cmath>

#include "ddh/sdk/options.hpp"
#include "ddh/sdk/schedule.hpp"
#include "options.hpp"

class OverUpdates : public ddh::Schedule {
 public:
  using Schedule::Schedule;

  [[nodiscard]] double lr(int64_t /*step*/) const final { return after(updates_); }
  void step_done(int64_t /*step*/, bool skipped) final {
    if (!skipped) ++updates_;
  }
  [[nodiscard]] std::vector<Number> numbers() final { return {{"updates", &updates_}}; }

 protected:
  // The rate after `done` updates.
  [[nodiscard]] virtual double after(double done) const = 0;

 private:
  double updates_ = 0;
};

// The rising part, 0 to 1 over k = 0 to n = max(2, warmup_steps): log(k + 1) / log(n), or k / n.
struct Rise {
  double n = 2;
  bool is_log = true;

  static Rise of(const ddh::SectionOptions& options, int64_t steps) {
    return {std::max(2.0, warmup_steps(options, steps)), options.text("warmup_type") == "log"};
  }
  double operator()(double k) const { return is_log ? 1.0 / std::log(n) * std::log(k + 1) : k / n; }
};

// The lowest and the highest rate.
struct Bounds {
  double min_lr = 0, max_lr = 0;

  static Bounds of(const ddh::SectionOptions& options, double max_lr) {
    const Bounds bounds{options.f64("min_lr"), max_lr};
    if (bounds.min_lr > bounds.max_lr)
      ddh::fail(DDH_INVALID_ARGUMENT, options.key("min_lr"), " = ", bounds.min_lr, " is above the highest rate (",
                bounds.max_lr, ", by ", options.key("max_lr"), " or the optimizer's lr); give a smaller one");
    return bounds;
  }
  [[nodiscard]] double at(double share) const { return min_lr + (max_lr - min_lr) * share; }
};

// DeepSpeed counts the warm-up as part of the decay. A decay that the user ends before the warm-up is refused.
inline void check_decay_follows_warmup(const ddh::SectionOptions& options, std::optional<double> decay_steps,
                                       int64_t steps) {
  const double warmup = warmup_steps(options, steps);
  if (decay_steps && *decay_steps < warmup)
    ddh::fail(DDH_INVALID_ARGUMENT, options.key("decay_steps"), " = ", *decay_steps,
              " ends the decay before the warm-up (", options.key("warmup_steps"), " = ", warmup,
              "); give more decay_steps or fewer warmup_steps");
}

inline constexpr ddh::Option kDeepSpeedWarmupSteps = {
    .name = "warmup_steps",
    .type = "number",
    .default_value = "1000",
    .rules = R"("exclusiveMinimum": 0, "x-unit": "steps")",
    .description =
        "updates over which the rate rises to its highest value; below 1: this part of all steps, rounded up",
};
inline constexpr ddh::Option kWarmupType = {"warmup_type", "string", R"("log")", R"("enum": ["log", "linear"])",
                                            "shape of the rise"};
