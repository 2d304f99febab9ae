// SPDX-License-Identifier: Apache-2.0
//
// schedule/options.hpp: what section `schedule` says to the type that it chose. An option is null until it is given; then
// it counts only for the types that use it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "schedule/schedule.hpp"

namespace ddhost {

class ScheduleOptions;

// An option that a type uses, and what holds when it is not given: JSON text, "@key" for the value of another key
// ("@optimizer.lr": the learning rate of the optimizer whose schedule it is),
// nullptr where it must be given.
struct OptionUse {
  const char* name;  // without "schedule."
  const char* preset;
};

struct ScheduleType {
  const char* name;
  const char* spelling;  // the class that DeepSpeed or torch has for it, nullptr: none
  std::vector<OptionUse> options;
  std::unique_ptr<Schedule> (*make)(const ScheduleOptions&);
};

const std::vector<ScheduleType>& schedule_types();

class ScheduleOptions {
 public:
  // Error: an option was given that the type does not use.
  // `optimizer`: the section whose learning rate takes the course.
  ScheduleOptions(const Config& config, bool evaluates, const std::string& optimizer);

  [[nodiscard]] const ScheduleType& type() const { return type_; }
  [[nodiscard]] bool evaluates() const { return evaluates_; }
  [[nodiscard]] double optimizer_lr() const { return config_.get<double>(lr_key_); }

  [[nodiscard]] bool given(const std::string& name) const;  // by the user
  [[nodiscard]] double number(const std::string& name) const { return value(name).get<double>(); }
  [[nodiscard]] bool flag(const std::string& name) const { return value(name).get<bool>(); }
  [[nodiscard]] std::string text(const std::string& name) const { return value(name).get<std::string>(); }

  // "schedule.min_lr = 0.1 from the command line", "schedule.max_lr = 0.0003 (optimizer.lr)"
  [[nodiscard]] std::string told(const std::string& name) const;
  // Error: told(name), what is wrong with it, and the type.
  [[noreturn]] void refuse(const std::string& name, const std::string& why) const;

 private:
  [[nodiscard]] const OptionUse* use(const std::string& name) const;
  [[nodiscard]] const OptionUse& used(const std::string& name) const;
  [[nodiscard]] Json value(const std::string& name) const;
  void refuse_unused() const;

  // The key that an option refers to.
  [[nodiscard]] std::string key_behind(const OptionUse& option) const;

  const Config& config_;
  const ScheduleType& type_;
  bool evaluates_;
  const std::string lr_key_;
};

}  // namespace ddhost
