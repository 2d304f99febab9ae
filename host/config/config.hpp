// SPDX-License-Identifier: Apache-2.0
//
// config/config.hpp: the effective configuration of a run: defaults < file < command line, checked and typed.
//
//   config.get<int64_t>("train.steps"), get<double>, get<bool>, get<std::string>, get<std::vector<double>>
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/host_schema.hpp"
#include "config/json.hpp"
#include "config/user_config.hpp"
#include "engine/services/run_config.hpp"

namespace ddhost {

// A plain value: every rank keeps its own copy.
class Config final : public RunConfig {
 public:
  struct Value {
    Json value;
    std::string source;  // "default", "'gpt.json'", "the command line", "derived", "measured"
  };

  Config() = default;
  // Checks what the user wrote against the sections and fills the defaults. With plugin_sections == false, the options
  // of plugins are not known yet: what the user wrote for them is passed over.
  Config(const UserConfig& user, const std::vector<Section>& sections, bool plugin_sections = true);

  [[nodiscard]] int64_t integer(std::string_view key) const override;
  [[nodiscard]] double number(std::string_view key) const override;
  [[nodiscard]] bool flag(std::string_view key) const override;
  [[nodiscard]] const std::string& text(std::string_view key) const override;
  [[nodiscard]] std::vector<double> numbers(std::string_view key) const override;
  [[nodiscard]] std::vector<std::string> texts(std::string_view key) const override;
  [[nodiscard]] bool is_given(std::string_view key) const override { return !at(key).value.is_null(); }
  [[nodiscard]] std::string file_text() const override { return effective().dump(2); }
  void set_measured(const std::string& key, const std::string& value) override { set(key, value, "measured"); }
  [[nodiscard]] std::unique_ptr<RunConfig> clone() const override { return std::make_unique<Config>(*this); }

  [[nodiscard]] const Value* find(std::string_view key) const;

  // One sentence for each option that was given another value than its default, of which it makes no difference.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

  // Sets a value that the host found out itself; a new key is allowed.
  void set(const std::string& key, Json value, const std::string& source);

  [[nodiscard]] Json effective() const;  // nested; a valid config file
  [[nodiscard]] Json sources() const;    // nested; where each value came from

 private:
  [[nodiscard]] const Value& at(std::string_view key) const;
  [[nodiscard]] Json nested(bool values) const;
  void apply(const Wish& wish, const std::vector<Section>& sections, bool plugin_sections);
  bool apply_to_object(const Wish& wish, const Section& section, const std::string& name,
                       const std::vector<Section>& sections);
  // The value of a key, given under the wish's name.
  void take(const Wish& wish, const std::string& key, Json value);
  // Null on the command line: what the file says of the option, under any name, does not count, nor this name's own word.
  void take_back(const Wish& wish, const Section& section, const Option& option, const std::vector<Section>& sections);
  void refuse_contradictions() const;
  void set_elsewhere(const std::vector<Section>& sections);
  void warn_of_idle(const std::string& key, const Option& option);

  // A wish for an option with x-sets: `key` is set by the user, `target` takes the value.
  struct Borrowed {
    std::string target;
    Json value;
    std::string source, where;
    bool from_file;
  };
  std::map<std::string, Borrowed> borrowed_;  // by key; while the wishes are applied

  // What one name says of a key in one layer: the last time it was given.
  struct Named {
    std::string key, name;
    bool from_file;
    Json value;        // of the key
    std::string said;  // for messages
  };
  std::vector<Named> named_;  // while the wishes are applied

  std::map<std::string, Value, std::less<>> values_;
  std::vector<std::string> order_;
  std::vector<std::string> warnings_;
};

}  // namespace ddhost
