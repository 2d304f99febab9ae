// SPDX-License-Identifier: Apache-2.0
//
// engine/services/run_config.hpp: a rank's interface to the effective configuration. Every value has been checked
// against its schema.
//
//   config.get<int64_t>("train.steps"), get<double>, get<bool>, get<std::string>, get<std::vector<double>>
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace ddhost {

// The prefix of the section of a further optimizer: "optimizer_kg".
inline constexpr std::string_view kFurtherOptimizer = "optimizer_";
// The prefix of the options of an optimizer in train.followers: "follower.ema".
inline constexpr std::string_view kFollower = "follower.";
// The prefix of the section of a schedule that phases name: "schedule_kg".
inline constexpr std::string_view kFurtherSchedule = "schedule_";
// The section of the transport that comm.inside names, where another one connects several hosts.
inline constexpr const char* kInsideCommSection = "comm_inside";

class RunConfig {
 public:
  virtual ~RunConfig() = default;

  // The value of a key; Error: DDH_NOT_FOUND no such key, DDH_INVALID_ARGUMENT another type.
  template <class T>
  [[nodiscard]] T get(std::string_view key) const;
  [[nodiscard]] virtual int64_t integer(std::string_view key) const = 0;  // true is 1, false is 0
  [[nodiscard]] virtual double number(std::string_view key) const = 0;
  [[nodiscard]] virtual bool flag(std::string_view key) const = 0;
  // The reference is valid while this object lives and the key is not set again.
  [[nodiscard]] virtual const std::string& text(std::string_view key) const = 0;
  [[nodiscard]] virtual std::vector<double> numbers(std::string_view key) const = 0;
  [[nodiscard]] virtual std::vector<std::string> texts(std::string_view key) const = 0;
  // Any value as JSON text; for lists and objects whose entries are not all of one type.
  [[nodiscard]] virtual std::string json(std::string_view key) const = 0;
  // False if the value is null, which means "not given".
  [[nodiscard]] virtual bool is_given(std::string_view key) const = 0;

  // The sentence with the user's word for each key in it that the user gave by another name or a flag:
  // "strategy.nvme_path (given as strategy.offload_optimizer.nvme_path) is ...".
  [[nodiscard]] virtual std::string in_words_of_user(std::string sentence) const = 0;

  // The whole configuration as JSON text: a valid config file.
  [[nodiscard]] virtual std::string file_text() const = 0;

  // Sets a value that the run has determined (ddh.config agree).
  virtual void set_measured(const std::string& key, const std::string& value) = 0;
  // A copy with one more section, for a plugin that another plugin makes. `schema`: of its options. `options`: JSON of an
  // object with some of them; "": the defaults. Throws if one is unknown or illegal.
  [[nodiscard]] virtual std::unique_ptr<RunConfig> with_section(const std::string& section, const char* schema,
                                                                const std::string& owner,
                                                                const std::string& options) const = 0;
  // A copy for one rank.
  [[nodiscard]] virtual std::unique_ptr<RunConfig> clone() const = 0;

 protected:
  RunConfig() = default;
  RunConfig(const RunConfig&) = default;
  RunConfig(RunConfig&&) = default;
  RunConfig& operator=(const RunConfig&) = default;
  RunConfig& operator=(RunConfig&&) = default;
};

template <class T>
T RunConfig::get(std::string_view key) const {
  if constexpr (std::is_same_v<T, int64_t>) {
    return integer(key);
  } else if constexpr (std::is_same_v<T, double>) {
    return number(key);
  } else if constexpr (std::is_same_v<T, bool>) {
    return flag(key);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return text(key);
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    return numbers(key);
  } else {
    static_assert(std::is_same_v<T, std::vector<std::string>>);
    return texts(key);
  }
}

}  // namespace ddhost
