// SPDX-License-Identifier: Apache-2.0
//
// schedule/types.cpp: the kinds of schedules, the options that each uses, and their defaults. A new kind is a row here, its
// curve in a file of its family, and its options in section.cpp.
#include "schedule/decay.hpp"
#include "schedule/deepspeed.hpp"
#include "schedule/one_cycle.hpp"
#include "schedule/options.hpp"
#include "schedule/plateau.hpp"

namespace ddhost {
namespace {

constexpr const char* kLr = "@optimizer.lr";
constexpr const char* kEnd = "@train.steps";

// A curve over all steps, or over the updates.
template <Curve (*make)(const ScheduleOptions&)>
std::unique_ptr<Schedule> over_steps(const ScheduleOptions& options) {
  return std::make_unique<CurveSchedule>(make(options), Counts::kSteps);
}
template <Curve (*make)(const ScheduleOptions&)>
std::unique_ptr<Schedule> over_updates(const ScheduleOptions& options) {
  return std::make_unique<CurveSchedule>(make(options), Counts::kUpdates);
}

std::vector<ScheduleType> plain_types() {
  return {
      {"constant", nullptr, {{"warmup_steps", "10"}}, over_steps<constant_curve>},
      {"linear",
       nullptr,
       {{"warmup_steps", "10"}, {"decay_steps", kEnd}, {"min_lr_ratio", "0.1"}},
       over_steps<linear_curve>},
      {"cosine",
       nullptr,
       {{"warmup_steps", "10"}, {"decay_steps", kEnd}, {"min_lr_ratio", "0.1"}},
       over_steps<cosine_curve>},
      {"wsd",
       nullptr,
       {{"warmup_steps", "10"},
        {"decay_steps", kEnd},
        {"decay_ratio", "0.1"},
        {"decay_type", "\"linear\""},
        {"min_lr_ratio", "0.1"}},
       over_steps<wsd_curve>},
      {"inverse_sqrt",
       nullptr,
       {{"warmup_steps", "10"}, {"timescale", "@schedule.warmup_steps"}},
       over_steps<inverse_sqrt_curve>},
  };
}

std::vector<ScheduleType> torch_types() {
  return {
      {"one_cycle",
       "OneCycleLR",
       {{"max_lr", kLr},
        {"decay_steps", kEnd},
        {"pct_start", "0.3"},
        {"div_factor", "25"},
        {"final_div_factor", "10000"},
        {"anneal_strategy", "\"cos\""},
        {"three_phase", "false"},
        {"cycle_momentum", "false"}},
       over_steps<one_cycle_curve>},
      {"plateau",
       "ReduceLROnPlateau",
       {{"mode", "\"min\""},
        {"factor", "0.1"},
        {"patience", "10"},
        {"threshold", "0.0001"},
        {"threshold_mode", "\"rel\""},
        {"cooldown", "0"},
        {"min_lr", "0"},
        {"eps", "1e-8"}},
       make_plateau},
  };
}

std::vector<ScheduleType> deepspeed_types() {
  return {
      {"warmup",
       "WarmupLR",
       {{"min_lr", "0"}, {"max_lr", kLr}, {"warmup_steps", "1000"}, {"warmup_type", "\"log\""}},
       over_updates<warmup_curve>},
      {"warmup_decay",
       "WarmupDecayLR",
       {{"min_lr", "0"}, {"max_lr", kLr}, {"warmup_steps", "1000"}, {"warmup_type", "\"log\""}, {"decay_steps", kEnd}},
       over_updates<warmup_decay_curve>},
      {"warmup_cosine",
       "WarmupCosineLR",
       {{"warmup_min_ratio", "0"},
        {"warmup_steps", "1000"},
        {"warmup_type", "\"log\""},
        {"decay_steps", kEnd},
        {"min_lr_ratio", "0.0001"}},
       over_updates<warmup_cosine_curve>},
      {"cycle",
       "OneCycle",
       {{"min_lr", nullptr},
        {"max_lr", kLr},
        {"cycle_up_steps", "2000"},
        {"cycle_down_steps", "@schedule.cycle_up_steps"},
        {"cycle_decay_every", "0"},
        {"cycle_decay_rate", "0"},
        {"cycle_momentum", "false"}},
       over_updates<cycle_curve>},
  };
}

}  // namespace

const std::vector<ScheduleType>& schedule_types() {
  static const std::vector<ScheduleType> types = [] {
    std::vector<ScheduleType> all = plain_types();
    for (const auto& family : {torch_types(), deepspeed_types()}) all.insert(all.end(), family.begin(), family.end());
    return all;
  }();
  return types;
}

std::unique_ptr<Schedule> make_schedule(const Config& config, bool evaluates, const std::string& optimizer) {
  const ScheduleOptions options(config, evaluates, optimizer);
  return options.type().make(options);
}

Schedules::Schedules(const Config& config, bool evaluates) {
  for (const auto& optimizer : config.get<std::vector<std::string>>("train.optimizers"))
    all_.push_back(make_schedule(config, evaluates, optimizer));
}

}  // namespace ddhost
