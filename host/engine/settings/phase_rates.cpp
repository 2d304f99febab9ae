// SPDX-License-Identifier: Apache-2.0
#include "engine/settings/phase_rates.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace ddhost {
namespace {

constexpr const char* kOfTheRun = "schedule";

const Plugin& plugin_of(const RunPlan& plan, const std::string& section) {
  const auto at = std::find_if(plan.phase_schedules.begin(), plan.phase_schedules.end(),
                               [&](const RunPlan::PhaseSchedule& s) { return s.section == section; });
  return at == plan.phase_schedules.end() ? plan.schedule : at->plugin;
}

}  // namespace

Schedules::Schedules(RankServices& services, const Plugin& plugin, const std::string& section, int64_t steps,
                     bool evaluates, std::optional<double> lr)
    : seat_(services, section + ":" + plugin.id(), section, plugin.desc),
      name_(ddh::str(section, ".type=", plugin.id())),
      reads_losses_(plugin.has_cap(DDH_CAP_READS_LOSS)),
      evaluates_(evaluates) {
  for (const auto& optimizer : services.config.get<std::vector<std::string>>("train.optimizers")) {
    const Instance& instance = all_.emplace_back(plugin, seat_.host(), section, &services.seat.record);
    table_ = &instance.require<ddh_schedule_api>(DDH_SCHEDULE_IFACE, DDH_SCHEDULE_API_MIN_SIZE);
    if (reads_losses_ && table_->observe == nullptr)
      instance.caller().blame(PluginCall::kGetInterface, {}, "has DDH_CAP_READS_LOSS and a table without observe");
    const ddh_schedule_args args{sizeof(ddh_schedule_args), 0,
                                 lr.value_or(services.config.get<double>(optimizer + ".lr")), steps};
    instance.call(PluginCall::kAttach, table_->attach, &args);
    static_cast<void>(numbers(instance).addresses());  // its checks
  }
}

double Schedules::lr(int32_t optimizer, int64_t step) const {
  const Instance& instance = at(optimizer);
  double rate = std::numeric_limits<double>::quiet_NaN();
  instance.call(PluginCall::kLr, table_->lr, step, &rate);
  if (!std::isfinite(rate) || rate < 0)
    instance.caller().blame(PluginCall::kLr, {}, "gave the learning rate ", rate, " for step ", step,
                            ", which must be finite and not negative");
  return rate;
}

void Schedules::step_done(int64_t step, bool skipped, double loss) {
  for (const Instance& instance : all_)
    if (table_->step_done != nullptr)
      instance.call(PluginCall::kStepDone, table_->step_done, step, static_cast<int32_t>(skipped));
  if (!evaluates_ && !skipped) observe(loss);
}

void Schedules::evaluated(double loss) {
  if (evaluates_) observe(loss);
}

void Schedules::observe(double loss) {
  if (!reads_losses_) return;
  for (const Instance& instance : all_) instance.call(PluginCall::kObserve, table_->observe, loss);
}

NamedNumbers<ddh_schedule_number, ddh_schedule_api> Schedules::numbers(const Instance& instance) const {
  return {instance.get(), *table_, instance.caller()};
}

ScheduleState Schedules::state(int32_t optimizer) const { return numbers(at(optimizer)).values(); }

void Schedules::restore(int32_t optimizer, const ScheduleState& saved) {
  numbers(at(optimizer))
      .restore(saved, "the saved state of the learning-rate schedule",
               "continue with the schedule.type of the checkpoint");
}

PhaseRates::PhaseRates(RankServices& services, const RunPlan& plan, const std::vector<PhaseSpec>& phases,
                       const TrainOrder& order, bool evaluates)
    : order_(order) {
  const auto shares = [](const PhaseSpec& phase) { return !phase.has_own_rates(); };
  if (std::any_of(phases.begin(), phases.end(), shares))
    all_.push_back(std::make_unique<Schedules>(services, plan.schedule, kOfTheRun, order.last_step(), evaluates));
  for (size_t i = 0; i < phases.size(); ++i) {
    has_own_.push_back(phases[i].has_own_rates());
    place_.push_back(has_own_[i] ? all_.size() : 0);
    if (!has_own_[i]) continue;
    const std::string section = phases[i].schedule.empty() ? kOfTheRun : phases[i].schedule;
    const int64_t steps = order.steps_of(static_cast<int64_t>(i)) * order.cycles();
    all_.push_back(
        std::make_unique<Schedules>(services, plugin_of(plan, section), section, steps, evaluates, phases[i].lr));
  }
}

int64_t PhaseRates::number(const TrainStep& step) const {
  const size_t place = order_.place_of(step.phase);
  if (!has_own_[place]) return step.step;
  const int64_t cycle = step.phase / static_cast<int64_t>(order_.phases().size());
  return cycle * order_.steps_of(step.phase) + step.phase_step;
}

double PhaseRates::lr(int32_t optimizer, const TrainStep& step) const {
  return of(step.phase).lr(optimizer, number(step));
}

// The run's rates count all steps; those of a phase only its own.
void PhaseRates::step_done(const TrainStep& step, bool skipped, double loss) {
  const bool runs_own = has_own_[order_.place_of(step.phase)];
  const bool has_shared = std::find(has_own_.begin(), has_own_.end(), false) != has_own_.end();
  if (runs_own && has_shared) all_.front()->step_done(step.step, skipped, loss);
  of(step.phase).step_done(number(step), skipped, loss);
}

std::string PhaseRates::reader_of_losses() const {
  const auto reader = std::find_if(all_.begin(), all_.end(), [](const auto& rates) { return rates->reads_losses(); });
  return reader == all_.end() ? "" : (*reader)->name();
}

}  // namespace ddhost
