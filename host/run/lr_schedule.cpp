// SPDX-License-Identifier: Apache-2.0
#include "run/lr_schedule.hpp"

#include <cmath>
#include <numbers>

namespace ddhost {

LrSchedule::LrSchedule(const Config& config)
    : lr_(config.get<double>("optimizer.lr")),
      min_lr_(lr_ * config.get<double>("schedule.min_lr_ratio")),
      warmup_(static_cast<double>(config.get<int64_t>("schedule.warmup_steps"))),
      decay_(static_cast<double>(config.get<int64_t>("schedule.decay_steps"))) {
  const auto type = config.get<std::string>("schedule.type");
  type_ = type == "constant" ? Type::kConstant : type == "linear" ? Type::kLinear : Type::kCosine;
  if (decay_ == 0) decay_ = static_cast<double>(config.get<int64_t>("train.steps"));
}

double LrSchedule::at(int64_t step) const {
  const auto done = static_cast<double>(step - 1);  // steps before this one
  if (done < warmup_) return lr_ * (done + 1) / (warmup_ + 1);
  if (type_ == Type::kConstant) return lr_;
  if (done > decay_) return min_lr_;
  const double progress = decay_ > warmup_ ? (done - warmup_) / (decay_ - warmup_) : 1.0;
  const double share = type_ == Type::kLinear ? 1 - progress : 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return min_lr_ + share * (lr_ - min_lr_);
}

}  // namespace ddhost
