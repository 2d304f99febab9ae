// SPDX-License-Identifier: Apache-2.0
#include "engine/settings/phase_rates.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace ddhost {
namespace {

constexpr uint32_t kMaxNumbers = 4096;  // maximum numbers of an instance; a larger count is an error

std::string names_of(const ScheduleState& state) {
  std::string list;
  for (const auto& [name, number] : state) list += (list.empty() ? "" : ", ") + name;
  return list.empty() ? "nothing" : list;
}

constexpr const char* kOfTheRun = "schedule";

const Plugin& plugin_of(const RunPlan& plan, const std::string& section) {
  const auto at = std::find_if(plan.phase_schedules.begin(), plan.phase_schedules.end(),
                               [&](const RunPlan::PhaseSchedule& s) { return s.section == section; });
  return at == plan.phase_schedules.end() ? plan.schedule : at->plugin;
}

}  // namespace

Schedules::Schedules(RankServices& services, const Plugin& plugin, const std::string& section, int64_t steps,
                     bool evaluates, std::optional<double> lr)
    : seat_(services, section + ":" + plugin.id(), section),
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
    static_cast<void>(numbers(instance));  // its checks
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

std::map<std::string, double*> Schedules::numbers(const Instance& instance) const {
  std::map<std::string, double*> all;
  if (table_->number_count == nullptr || table_->number == nullptr) return all;
  const uint32_t count = table_->number_count(instance.get());
  if (count > kMaxNumbers)
    instance.caller().blame(PluginCall::kNumber, {}, "has ", count, " numbers, at most ", kMaxNumbers,
                            " are supported");
  for (uint32_t i = 0; i < count; ++i) {
    ddh_schedule_number number{sizeof(ddh_schedule_number), 0, nullptr, nullptr};
    instance.call(PluginCall::kNumber, table_->number, i, &number);
    if (number.name == nullptr || *number.name == '\0' || number.value == nullptr)
      instance.caller().blame(PluginCall::kNumber, {}, "gave number ", i, " without a name or a value (NULL)");
    if (!all.emplace(number.name, number.value).second)
      instance.caller().blame(PluginCall::kNumber, {}, "gave two numbers the name '", number.name, "'");
  }
  return all;
}

ScheduleState Schedules::state(int32_t optimizer) const {
  ScheduleState state;
  for (const auto& [name, value] : numbers(at(optimizer))) state[name] = *value;
  return state;
}

void Schedules::restore(int32_t optimizer, const ScheduleState& saved) {
  const std::string saved_names = names_of(saved), own_names = names_of(state(optimizer));
  if (saved_names != own_names)
    ddh::fail(DDH_FAILED_PRECONDITION, "the saved state of the learning-rate schedule holds ", saved_names, ", but ",
              at(optimizer).caller().name(), " keeps ", own_names,
              "; continue with the schedule.type of the checkpoint");
  for (const auto& [name, value] : numbers(at(optimizer))) *value = saved.at(name);
  require_kept(optimizer, saved);
}

// A schedule that gives the address of a copy would go on with its first values.
void Schedules::require_kept(int32_t optimizer, const ScheduleState& saved) const {
  const PluginCaller& caller = at(optimizer).caller();
  const ScheduleState now = state(optimizer);
  if (names_of(now) != names_of(saved))
    caller.blame(PluginCall::kNumber, {}, "gave ", names_of(saved), " and then ", names_of(now));
  for (const auto& [name, value] : now) {
    const double written = saved.at(name);
    if (std::bit_cast<uint64_t>(value) == std::bit_cast<uint64_t>(written)) continue;  // so that NaN equals itself
    caller.blame(PluginCall::kNumber, {}, "gave number '", name, "' with the value ", value,
                 " after the host had written ", written, ", from the checkpoint, to the address that it gave for it");
  }
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
