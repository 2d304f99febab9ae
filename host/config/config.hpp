// SPDX-License-Identifier: Apache-2.0
//
// config/config.hpp: the effective configuration of a run: defaults < file < command line, checked and typed.
//
//   config.get<int64_t>("train.steps"), get<double>, get<bool>, get<std::string>, get<std::vector<double>>
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/given.hpp"
#include "config/host_schema.hpp"
#include "config/json.hpp"
#include "config/user_config.hpp"

namespace ddhost {

// A plain value: every rank may keep its own copy.
class Config {
 public:
  struct Value {
    Json value;
    std::string source;  // "default", "'gpt.json'", "the command line", "derived", "measured"
  };

  Config() = default;
  // Checks what the user wrote against the sections and fills the defaults. With plugin_sections == false, the options
  // of plugins are not known yet: what the user wrote for them is passed over.
  Config(const UserConfig& user, const std::vector<Section>& sections, bool plugin_sections = true);

  // The value of a key; Error: DDH_NOT_FOUND no such key, DDH_INVALID_ARGUMENT another type.
  template <class T>
  [[nodiscard]] T get(std::string_view key) const;
  // The string behind a key; its address holds while the Config lives and the key is not set again.
  [[nodiscard]] const std::string& text(std::string_view key) const;
  [[nodiscard]] const Value* find(std::string_view key) const;

  // One sentence for each option that was given a value other than its default, and that changes nothing.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

  // Sets a value that the host found out itself; a new key is allowed.
  void set(const std::string& key, Json value, const std::string& source);

  [[nodiscard]] Json effective() const;  // nested; a valid config file
  [[nodiscard]] Json sources() const;    // nested; where each value came from

 private:
  [[nodiscard]] const Value& at(std::string_view key) const;
  [[nodiscard]] Json nested(bool values) const;
  void warn_of_idle(const Option& option, const std::string& key, const Json& value);
  // Another program's option has no effect, but may have to repeat one of ours.
  void check_foreign(const Given& given);

  std::map<std::string, Value, std::less<>> values_;
  std::vector<std::string> order_;
  std::vector<std::string> warnings_;
};

template <>
int64_t Config::get<int64_t>(std::string_view key) const;
template <>
double Config::get<double>(std::string_view key) const;
template <>
bool Config::get<bool>(std::string_view key) const;
template <>
std::string Config::get<std::string>(std::string_view key) const;
template <>
std::vector<double> Config::get<std::vector<double>>(std::string_view key) const;
template <>
std::vector<std::string> Config::get<std::vector<std::string>>(std::string_view key) const;

}  // namespace ddhost
