// SPDX-License-Identifier: Apache-2.0
//
// schedule/decay.cpp: warm-up, then constant, linear, cosine, wsd or inverse square root.
#include "schedule/decay.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

enum class Fall { kLinear, kCosine, kSqrt };

// From 1 at progress 0 to 0 at progress 1.
double share_left(Fall fall, double progress) {
  switch (fall) {
    case Fall::kLinear:
      return 1 - progress;
    case Fall::kCosine:
      return 0.5 * (1 + std::cos(std::numbers::pi * progress));
    case Fall::kSqrt:
      break;
  }
  return 1 - std::sqrt(progress);
}

double rise(double lr, double done, double warmup) { return lr * (done + 1) / (warmup + 1); }

// Up until `warmup`, lr until `begin`, down until `end`, min_lr from there.
struct Decay {
  double lr, min_lr, warmup, begin, end;
  Fall fall;

  double operator()(double done) const {
    if (done < warmup) return rise(lr, done, warmup);
    if (done < begin) return lr;
    if (done > end) return min_lr;
    const double progress = end > begin ? (done - begin) / (end - begin) : 1.0;
    return min_lr + share_left(fall, progress) * (lr - min_lr);
  }
};

Curve decay_curve(const ScheduleOptions& options, Fall fall) {
  check_decay_follows_warmup(options);
  const double lr = options.optimizer_lr(), warmup = options.number("warmup_steps");
  return Decay{lr, lr * options.number("min_lr_ratio"), warmup, warmup, options.number("decay_steps"), fall};
}

}  // namespace

void check_decay_follows_warmup(const ScheduleOptions& options) {
  if (options.given("decay_steps") && options.number("decay_steps") < options.number("warmup_steps"))
    options.refuse("decay_steps", "the decay would end before the warm-up does (" + options.told("warmup_steps") +
                                      "); give more decay_steps or fewer warmup_steps");
}

Curve constant_curve(const ScheduleOptions& options) {
  return [lr = options.optimizer_lr(), warmup = options.number("warmup_steps")](double done) {
    return done < warmup ? rise(lr, done, warmup) : lr;
  };
}

Curve linear_curve(const ScheduleOptions& options) { return decay_curve(options, Fall::kLinear); }
Curve cosine_curve(const ScheduleOptions& options) { return decay_curve(options, Fall::kCosine); }

Curve wsd_curve(const ScheduleOptions& options) {
  const std::string type = options.text("decay_type");
  const double lr = options.optimizer_lr(), warmup = options.number("warmup_steps");
  const double end = options.number("decay_steps");
  const double begin = end - std::max(1.0, std::round(options.number("decay_ratio") * end));
  if (options.given("decay_steps") && begin < warmup)
    options.refuse("decay_steps", ddh::str("the decay (", options.told("decay_ratio"), ") would begin at step ", begin,
                                           ", before the warm-up ends (", options.told("warmup_steps"),
                                           "); give more decay_steps, a smaller decay_ratio or fewer warmup_steps"));
  return Decay{lr,     lr * options.number("min_lr_ratio"),
               warmup, std::max(begin, warmup),
               end,    type == "linear" ? Fall::kLinear : type == "cosine" ? Fall::kCosine : Fall::kSqrt};
}

Curve inverse_sqrt_curve(const ScheduleOptions& options) {
  constexpr double kNoWarmupTimescale = 10000;  // where there is no warm-up to take it from
  const double lr = options.optimizer_lr(), warmup = options.number("warmup_steps");
  const double given = options.number("timescale"), timescale = given > 0 ? given : kNoWarmupTimescale;
  return [=](double done) {
    return done < warmup ? rise(lr, done, warmup) : lr * std::sqrt(timescale / (done - warmup + timescale));
  };
}

}  // namespace ddhost
