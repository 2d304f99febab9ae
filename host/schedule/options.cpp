// SPDX-License-Identifier: Apache-2.0
//
// schedule/options.cpp: reading the options of a schedule.
#include "schedule/options.hpp"

#include <algorithm>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

const ScheduleType& type_of(const Config& config) {
  const std::string& wanted = config.text("schedule.type");
  for (const ScheduleType& type : schedule_types())
    if (wanted == type.name || (type.spelling != nullptr && wanted == type.spelling)) return type;
  ddh::fail(DDH_INTERNAL, "schedule.type = ", wanted, " is legal but unknown");
}

bool is_reference(const OptionUse& use) { return use.preset != nullptr && use.preset[0] == '@'; }

}  // namespace

ScheduleOptions::ScheduleOptions(const Config& config, bool evaluates, const std::string& optimizer)
    : config_(config), type_(type_of(config)), evaluates_(evaluates), lr_key_(optimizer + ".lr") {
  refuse_unused();
}

void ScheduleOptions::refuse_unused() const {
  for (const ScheduleType& other : schedule_types()) {
    for (const OptionUse& option : other.options) {
      if (use(option.name) != nullptr || !given(option.name)) continue;
      std::string list;
      for (const OptionUse& mine : type_.options) list += (list.empty() ? "" : ", ") + std::string(mine.name);
      ddh::fail(DDH_INVALID_ARGUMENT, told(option.name), " is not used by schedule.type = ", type_.name,
                ", which takes ", list, "; leave it out or set it to null");
    }
  }
}

const OptionUse* ScheduleOptions::use(const std::string& name) const {
  const auto at =
      std::find_if(type_.options.begin(), type_.options.end(), [&](const OptionUse& o) { return o.name == name; });
  return at == type_.options.end() ? nullptr : &*at;
}

std::string ScheduleOptions::key_behind(const OptionUse& option) const {
  const std::string key = option.preset + 1;
  return key == "optimizer.lr" ? lr_key_ : key;
}

const OptionUse& ScheduleOptions::used(const std::string& name) const {
  const OptionUse* found = use(name);
  if (found == nullptr) ddh::fail(DDH_INTERNAL, "schedule.type = ", type_.name, " does not list its option ", name);
  return *found;
}

bool ScheduleOptions::given(const std::string& name) const {
  const Config::Value* value = config_.find("schedule." + name);
  return value != nullptr && !value->value.is_null() && value->source != "default";
}

Json ScheduleOptions::value(const std::string& name) const {
  const OptionUse& option = used(name);
  const Config::Value* value = config_.find("schedule." + name);
  if (value != nullptr && !value->value.is_null()) return value->value;
  if (option.preset == nullptr)
    ddh::fail(DDH_INVALID_ARGUMENT, "schedule.type = ", type_.name, " has no default for schedule.", name,
              "; give one");
  if (!is_reference(option)) return Json::parse(option.preset);
  const std::string key = key_behind(option), section = "schedule.";
  return key.rfind(section, 0) == 0 ? this->value(key.substr(section.size())) : Json(config_.get<double>(key));
}

std::string ScheduleOptions::told(const std::string& name) const {
  const std::string key = "schedule." + name;
  if (given(name)) {
    const Config::Value& value = *config_.find(key);
    return ddh::str(key, " = ", value.value.dump(), " from ", value.source);
  }
  const OptionUse& option = used(name);
  return ddh::str(key, " = ", value(name).get<double>(), " (", is_reference(option) ? key_behind(option) : "default",
                  ")");
}

void ScheduleOptions::refuse(const std::string& name, const std::string& why) const {
  ddh::fail(DDH_INVALID_ARGUMENT, told(name), " does not go with schedule.type = ", type_.name, ": ", why);
}

void complete_schedule(Config& config) {
  const bool evaluates = config.get<int64_t>("train.eval_every") > 0;
  const ScheduleOptions options(config, evaluates, "optimizer");
  (void)Schedules(config, evaluates);  // its checks
  const Config::Value wanted = *config.find("schedule.type");
  if (wanted.value != options.type().name)
    config.set("schedule.type", options.type().name,
               ddh::str(wanted.source, " (as ", wanted.value.get<std::string>(), ")"));
  for (const OptionUse& option : options.type().options)
    if (config.find(ddh::str("schedule.", option.name))->value.is_null() && !is_reference(option))
      config.set(ddh::str("schedule.", option.name), Json::parse(option.preset), "default");
}

}  // namespace ddhost
