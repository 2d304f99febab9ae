// SPDX-License-Identifier: Apache-2.0
//
// config/user_config.hpp: the user's values from a file and the command line, before they are checked.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"

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
  bool replaced = false;       // of the file: it counts no more, because of what the command line says
  std::string problem = {};  // why the text is no JSON, although it begins as such; an option that takes a text has it
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
  // The file's value for a key, also one that is replaced; or nullptr.
  [[nodiscard]] const Wish* find_in_file(std::string_view key) const;
  // The last value for a key on the command line, or nullptr.
  [[nodiscard]] const Wish* find_on_command_line(std::string_view key) const;

  // The file's values alone, but for those that are replaced.
  [[nodiscard]] UserConfig of_file() const;

  // Adds the values of another program's file: `given` in place of those of our file, `presets` where our file says nothing.
  // In the sections of plugins, which belong together, one of the two files counts as a whole.
  void put_foreign(std::vector<Wish> given, std::vector<Wish> presets);

  // Marks the file's values for which `is_replaced` holds as replaced. Returns their keys, but for those that have no value
  // and those that the command line gives too.
  std::vector<std::string> replace_in_file(const std::function<bool(const Wish&)>& is_replaced);

 private:
  void add_file(const std::string& text, const std::filesystem::path& file);
  void add_object(const Json& object, const std::string& prefix, const std::filesystem::path& file);
  [[nodiscard]] const Wish* last(std::string_view key, const std::function<bool(const Wish&)>& counts) const;

  std::vector<Wish> wishes_;
};

// Splits "train.steps=100"; Error when there is no '='.
Override parse_override(const std::string& text);

}  // namespace ddhost
