// SPDX-License-Identifier: Apache-2.0
//
// schedule/deepspeed.cpp: WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle.
#include "schedule/deepspeed.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "schedule/decay.hpp"

namespace ddhost {
namespace {

// The rising part, 0 to 1 over k = 0 to n.
struct Rise {
  double n;
  bool is_log;
  double operator()(double k) const { return is_log ? 1.0 / std::log(n) * std::log(k + 1) : k / n; }
};

Rise rise_of(const ScheduleOptions& options) {
  const double steps = options.number("warmup_steps");
  if (steps < 1) options.refuse("warmup_steps", "a warm-up of at least 1 step is needed; give one");
  return {std::max(2.0, steps), options.text("warmup_type") == "log"};
}

struct Bounds {
  double min_lr, max_lr;
  [[nodiscard]] double at(double share) const { return min_lr + (max_lr - min_lr) * share; }
};

Bounds bounds_of(const ScheduleOptions& options) {
  const Bounds bounds{options.number("min_lr"), options.number("max_lr")};
  if (bounds.min_lr > bounds.max_lr)
    options.refuse("min_lr", "it is above the highest rate (" + options.told("max_lr") + "); give a smaller one");
  return bounds;
}

}  // namespace

Curve warmup_curve(const ScheduleOptions& options) {
  return [rise = rise_of(options), bounds = bounds_of(options)](double done) {
    const double k = done - 1;
    if (k < 0) return bounds.min_lr;
    return bounds.at(k < rise.n ? rise(k) : 1.0);
  };
}

Curve warmup_decay_curve(const ScheduleOptions& options) {
  check_decay_follows_warmup(options);
  return [rise = rise_of(options), bounds = bounds_of(options), end = options.number("decay_steps")](double done) {
    const double k = done - 1;
    if (k < 0) return bounds.min_lr;
    return bounds.at(k < rise.n ? rise(k) : std::max(0.0, (end - k) / std::max(1.0, end - rise.n)));
  };
}

Curve warmup_cosine_curve(const ScheduleOptions& options) {
  check_decay_follows_warmup(options);
  const double lr = options.optimizer_lr(), end = options.number("decay_steps");
  const double start = options.number("warmup_min_ratio"), last = options.number("min_lr_ratio");
  return [=, rise = rise_of(options)](double done) {
    const double k = done - 1;
    if (k < 0) return 0.0;  // not warmup_min_ratio: so it is there
    if (k < rise.n) return lr * (start + rise(k) * (1 - start));
    const double progress = std::min(1.0, (k - rise.n + 1) / std::max(1.0, end - rise.n));
    return lr * (last + (1 - last) * ((1 + std::cos(std::numbers::pi * progress)) / 2));
  };
}

// k + 1, not k, is the place in the cycle: only the first update runs at min_lr.
Curve cycle_curve(const ScheduleOptions& options) {
  const Bounds bounds = bounds_of(options);
  const double up = options.number("cycle_up_steps"), down = options.number("cycle_down_steps");
  const double every = options.number("cycle_decay_every"), rate = options.number("cycle_decay_rate");
  return [=](double done) {
    const double total = up + down;
    if (done <= up) return bounds.at(done / up);
    if (done <= total) return bounds.at((total - done) / down);
    return every == 0 ? bounds.min_lr : bounds.min_lr / (1 + rate * ((done - total) / every));
  };
}

}  // namespace ddhost
