// SPDX-License-Identifier: Apache-2.0
#include "engine/settings/schedules.hpp"

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
}

}  // namespace ddhost
