// SPDX-License-Identifier: Apache-2.0
#include "engine/settings/loss_scale.hpp"

#include <algorithm>
#include <cmath>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/services/run_config.hpp"

namespace ddhost {
namespace {

// Factors that are not powers of two would round, so another loss scale would give other bits.
double power_of_two(const RunConfig& config, const char* key) {
  const auto value = config.get<double>(key);
  int exponent = 0;
  if (value <= 0 || std::frexp(value, &exponent) != 0.5) {
    const double nearest = value > 0 ? std::exp2(std::min(std::round(std::log2(value)), 1023.0)) : 1.0;
    ddh::fail(DDH_INVALID_ARGUMENT, key, "=", number_text(value), " is not a power of two; use ", number_text(nearest));
  }
  return value;
}

}  // namespace

LossScaleSettings LossScaleSettings::from(const RunConfig& config) {
  LossScaleSettings s;
  const auto fixed = config.get<double>("precision.loss_scale");
  if (fixed != 0) {
    s.initial = power_of_two(config, "precision.loss_scale");
    return s;
  }
  if (config.get<std::string>("precision.compute") != "fp16") return s;
  s.dynamic = true;
  s.initial = std::exp2(static_cast<double>(config.get<int64_t>("precision.initial_scale_power")));
  s.factor = power_of_two(config, "precision.loss_scale_factor");
  s.min = power_of_two(config, "precision.min_loss_scale");
  s.window = config.get<int64_t>("precision.loss_scale_window");
  s.hysteresis = config.get<int64_t>("precision.hysteresis");
  s.consecutive_hysteresis = config.get<bool>("precision.consecutive_hysteresis");
  s.raise_at_min = config.get<std::string>("precision.loss_scale_at_min") == "raise";
  s.grows_at_window_end = config.get<std::string>("precision.loss_scale_growth") == "at_window_end";
  return s;
}

// A fixed scale comes from the configuration.
void LossScale::restore(const LossScaleState& saved) {
  if (!settings_.dynamic) return;
  scale_ = saved.scale;
  hysteresis_left_ = saved.hysteresis_left;
  steps_ = saved.steps;
  last_overflow_ = saved.last_overflow;
}

bool LossScale::step_done(bool overflow) {
  if (!settings_.dynamic) return true;
  bool can_go_on = true;
  if (overflow) {
    can_go_on = overflowed();
    last_overflow_ = steps_;
  } else {
    if (settings_.consecutive_hysteresis) hysteresis_left_ = settings_.hysteresis;
    const int64_t good = steps_ - last_overflow_ - (settings_.grows_at_window_end ? 0 : 1);
    if (good > 0 && good % settings_.window == 0) {
      if (!settings_.consecutive_hysteresis) hysteresis_left_ = settings_.hysteresis;
      scale_ *= settings_.factor;
    }
  }
  ++steps_;
  return can_go_on;
}

bool LossScale::overflowed() {
  if (settings_.hysteresis != 1 && hysteresis_left_ != 1) {
    --hysteresis_left_;
    return true;
  }
  if (scale_ <= settings_.min && settings_.raise_at_min) return false;
  scale_ = std::max(scale_ / settings_.factor, settings_.min);
  return true;
}

}  // namespace ddhost
