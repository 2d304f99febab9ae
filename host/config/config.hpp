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

#include "base/json.hpp"
#include "config/given.hpp"
#include "config/host_schema.hpp"
#include "config/user_config.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/services/run_config.hpp"

namespace ddhost {

// A value type: every rank keeps its own copy.
class Config final : public RunConfig {
 public:
  struct Value {
    Json value;
    std::string source;  // "default", "'gpt.json'", "the command line", "derived", "measured"
  };

  Config() = default;
  // Checks the user's values against the sections and fills in defaults. With plugin_sections == false, the options of
  // plugins are not known yet, and the user's values for them are ignored.
  Config(const UserConfig& user, const std::vector<Section>& sections, bool plugin_sections = true);

  [[nodiscard]] int64_t integer(std::string_view key) const override;
  [[nodiscard]] double number(std::string_view key) const override;
  [[nodiscard]] bool flag(std::string_view key) const override;
  [[nodiscard]] const std::string& text(std::string_view key) const override;
  [[nodiscard]] std::vector<double> numbers(std::string_view key) const override;
  [[nodiscard]] std::vector<std::string> texts(std::string_view key) const override;
  [[nodiscard]] std::string json(std::string_view key) const override { return at(key).value.dump(); }
  [[nodiscard]] bool is_given(std::string_view key) const override { return !at(key).value.is_null(); }
  [[nodiscard]] std::string file_text() const override { return effective().dump(2); }
  [[nodiscard]] std::string in_words_of_user(std::string sentence) const override;
  void set_measured(const std::string& key, const std::string& value) override { set(key, value, "measured"); }
  [[nodiscard]] std::unique_ptr<RunConfig> with_section(const std::string& section, const char* schema,
                                                        const std::string& owner,
                                                        const std::string& options) const override;
  [[nodiscard]] std::unique_ptr<RunConfig> clone() const override { return std::make_unique<Config>(*this); }

  [[nodiscard]] const Value* find(std::string_view key) const;
  // What a value of an earlier configuration means: words of other programs and versions are replaced.
  [[nodiscard]] Json meaning_of(const std::string& key, const Json& value) const;

  // One message for each option without effect that has a value other than its default.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

  // Sets a value that the host has determined; a new key is allowed.
  void set(const std::string& key, Json value, const std::string& source);

  [[nodiscard]] Json effective() const;  // nested; a valid config file
  [[nodiscard]] Json sources() const;    // nested; the source of each value
  // Each option whose value is not its default: [{"key": ..., "source": ..., "default": ...}].
  [[nodiscard]] Json given() const;

 private:
  [[nodiscard]] const Value& at(std::string_view key) const;
  [[nodiscard]] Json nested(bool values) const;
  void warn_of_idle(const Option& option, const std::string& key, const Json& value);
  // Another program's option has no effect, but may be required to equal one of ours.
  void check_foreign(const Given& given);

  std::map<std::string, Value, std::less<>> values_;
  std::vector<std::string> order_;
  std::map<std::string, Json> presets_;  // the defaults, by key
  std::vector<std::string> warnings_;
  std::map<std::string, Json> spellings_;     // by key
  std::map<std::string, std::string> words_;  // by key: "--nproc", "strategy.reduce_bucket_size = 500"
};

// Calls body; an error names options as the user wrote them.
template <class Body>
auto in_words_of_user(const Config& config, Body&& body) {
  try {
    return body();
  } catch (const ddh::Error& error) {
    throw ddh::Error(error.code(), config.in_words_of_user(error.what()));
  }
}

}  // namespace ddhost
