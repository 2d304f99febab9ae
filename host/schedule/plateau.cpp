// SPDX-License-Identifier: Apache-2.0
//
// schedule/plateau.cpp: counting losses that are no better.
#include "schedule/plateau.hpp"

#include <algorithm>
#include <limits>

#include "ddh/sdk/plugin.hpp"
#include "schedule/curve.hpp"

namespace ddhost {

void Plateau::step_done(const StepReport& report) {
  if (!settings_.evaluations && !report.skipped) see(report.loss);
}

void Plateau::evaluated(double loss) {
  if (settings_.evaluations) see(loss);
}

// A nan is never better.
bool Plateau::is_better(double loss) const {
  const double threshold = settings_.threshold;
  if (!has_best_) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    return settings_.rising ? loss > -kInf : loss < kInf;
  }
  if (settings_.rising) return loss > (settings_.relative ? best_ * (1 + threshold) : best_ + threshold);
  return loss < (settings_.relative ? best_ * (1 - threshold) : best_ - threshold);
}

void Plateau::see(double loss) {
  if (is_better(loss)) {
    has_best_ = true;
    best_ = loss;
    n_bad_ = 0;
  } else {
    ++n_bad_;
  }
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    n_bad_ = 0;
  }
  if (n_bad_ <= settings_.patience) return;
  const double reduced = std::max(lr_ * settings_.factor, settings_.min_lr);
  if (lr_ - reduced > settings_.eps) lr_ = reduced;
  cooldown_left_ = settings_.cooldown;
  n_bad_ = 0;
}

ScheduleState Plateau::state() const {
  return {{"lr", lr_},
          {"has_best", has_best_ ? 1.0 : 0.0},
          {"best", best_},
          {"n_bad", n_bad_},
          {"cooldown_left", cooldown_left_}};
}

void Plateau::restore(const ScheduleState& state) {
  check_same_names(state, this->state());
  lr_ = state.at("lr");
  has_best_ = state.at("has_best") != 0;
  best_ = state.at("best");
  n_bad_ = state.at("n_bad");
  cooldown_left_ = state.at("cooldown_left");
}

std::unique_ptr<Schedule> make_plateau(const ScheduleOptions& options) {
  const double lr = options.optimizer_lr();
  PlateauSettings settings;
  settings.factor = options.number("factor");
  settings.patience = options.number("patience");
  settings.threshold = options.number("threshold");
  settings.relative = options.text("threshold_mode") == "rel";
  settings.rising = options.text("mode") == "max";
  settings.cooldown = options.number("cooldown");
  settings.min_lr = options.number("min_lr");
  settings.eps = options.number("eps");
  settings.evaluations = options.evaluates();
  if (settings.factor >= 1) options.refuse("factor", "the rate would not fall; give a factor below 1");
  if (settings.min_lr > lr)
    options.refuse("min_lr", ddh::str("it is above optimizer.lr = ", lr, ", where the run begins; give a smaller one"));
  return std::make_unique<Plateau>(lr, settings);
}

}  // namespace ddhost
