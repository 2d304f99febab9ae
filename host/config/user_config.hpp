// SPDX-License-Identifier: Apache-2.0
//
// config/user_config.hpp: the user's values from a file and the command line, before they are checked.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "config/json.hpp"

namespace ddhost {

// key=value, or a flag that sets a key.
struct Override {
  std::string key;     // "train.steps"
  std::string text;    // "100"
  std::string source;  // "the command line", "--nproc"
};

// One value that the user gave.
struct Wish {
  std::string key;
  Json value;        // from the command line: the parsed text, else the text
  std::string text;  // from the command line: as written
  bool from_file = false;
  std::string source;          // for messages: "the command line", "'gpt.json'"
  std::filesystem::path base;  // base of relative paths
};

// Later values win over earlier ones.
class UserConfig {
 public:
  UserConfig() = default;
  // Reads `file` ("" = none) and puts the overrides on top. Error: missing file, not JSON (line and column).
  static UserConfig read(const std::filesystem::path& file, const std::vector<Override>& overrides);

  // The same for the text of a file of that name.
  static UserConfig from_text(const std::string& text, const std::filesystem::path& file);

  [[nodiscard]] const std::vector<Wish>& wishes() const { return wishes_; }
  // The last value for a key, or nullptr.
  [[nodiscard]] const Wish* find(std::string_view key) const;

 private:
  void add_file(const std::string& text, const std::filesystem::path& file);
  void add_object(const Json& object, const std::string& prefix, const std::filesystem::path& file);

  std::vector<Wish> wishes_;
};

// Splits "train.steps=100"; Error when there is no '='.
Override parse_override(const std::string& text);

}  // namespace ddhost
