// SPDX-License-Identifier: Apache-2.0
//
// config/user_config.cpp: reads the config file and key=value arguments.
#include "config/user_config.hpp"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/json.hpp"
#include "base/text.hpp"
#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/plugin.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr uint64_t kMostConfigBytes = uint64_t{1} << 20;

std::string read_file(const fs::path& file) {
  return ddh::read_input(file.string(), {"config file", "check the path given to --config"}, kMostConfigBytes);
}

struct Place {
  size_t line = 1, column = 1;
};

// Line and column of a byte, counted as in editors. `byte` counts from 1 and is the last one that was read.
Place place_of(const std::string& text, size_t byte) {
  Place place;
  for (size_t i = 0; i + 1 < byte && i < text.size(); ++i) {
    ++place.column;
    if (text[i] == '\n') place = {place.line + 1, 1};
  }
  return place;
}

Json parse_file(const std::string& text, const fs::path& file) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    ddh::fail(DDH_INVALID_ARGUMENT, "config file '", file.string(), "' is empty; write at least {}");
  try {
    return read_json(text);
  } catch (const JsonError& error) {
    const Place place = place_of(text, error.byte);
    const std::string where = error.byte == 0 ? "" : ddh::str(", line ", place.line, ", column ", place.column);
    ddh::fail(DDH_INVALID_ARGUMENT, "config file '", file.string(), "'", where, ": ", error.what(), "; fix the file");
  }
}

// An argument as JSON if it parses, else as text. `problem`: it begins as JSON, but is none; for an option that takes a text
// it is one: --page '[::1]:0'.
Json parse_word(const Override& over, std::string& problem) {
  const bool is_nested = !over.text.empty() && (over.text.front() == '{' || over.text.front() == '[');
  try {
    Json value = read_json(over.text);
    return value.is_null() && over.source.rfind("--", 0) == 0 ? Json(over.text) : value;  // a flag's value is a name
  } catch (const JsonError& error) {
    if (const std::string number = json_number(over.text); number != over.text) return read_json(number);
    if (is_nested) problem = error.what();
    return over.text;
  }
}

}  // namespace

Override parse_override(const std::string& text) {
  const size_t at = text.find('=');
  if (at == std::string::npos || at == 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "'", text,
              "' on the command line is neither a command, a flag nor key=value; write for example "
              "train.steps=100");
  return {text.substr(0, at), text.substr(at + 1), "the command line"};
}

UserConfig UserConfig::read(const fs::path& file, const std::vector<Override>& overrides) {
  UserConfig user;
  if (!file.empty()) user.add_file(read_file(file), file);
  for (const Override& over : overrides) {
    std::string problem;
    Json value = parse_word(over, problem);
    user.wishes_.push_back({over.key, std::move(value), over.text, false, over.source, fs::current_path()});
    user.wishes_.back().problem = problem;
  }
  return user;
}

UserConfig UserConfig::from_text(const std::string& text, const fs::path& file) {
  UserConfig user;
  user.add_file(text, file);
  return user;
}

void UserConfig::add_file(const std::string& text, const fs::path& file) {
  const Json root = parse_file(text, file);
  if (!root.is_object())
    ddh::fail(DDH_INVALID_ARGUMENT, "config file '", file.string(), "' holds no JSON object; write {\"train\": {...}}");
  for (const auto& [section, content] : root.items()) {
    if (!content.is_object() && !content.is_null())
      ddh::fail(DDH_INVALID_ARGUMENT, "'", section, "' in '", file.string(), "' is ", shown(content),
                ", not a section; write ",
                section.find('.') == std::string::npos ? "\"" + section + "\": {\"key\": value}"
                                                       : "\"" + section.substr(0, section.find('.')) + "\": {\"" +
                                                             section.substr(section.find('.') + 1) + "\": value}");
    add_object(content.is_null() ? Json::object() : content, section, file);
  }
}

void UserConfig::add_object(const Json& object, const std::string& prefix, const fs::path& file) {
  // An empty section still counts: its name is checked.
  if (object.empty())
    wishes_.push_back({prefix + ".", Json(), "", true, "'" + file.string() + "'", fs::absolute(file).parent_path()});
  for (const auto& [name, value] : object.items()) {
    const std::string key = prefix + "." + name;
    if (find(key) != nullptr)
      ddh::fail(DDH_INVALID_ARGUMENT, "'", key, "' occurs twice in '", file.string(), "', once as a name with a dot; ",
                "leave one of them out");
    if (value.is_object()) {
      add_object(value, key, file);
    } else {
      wishes_.push_back({key, value, "", true, "'" + file.string() + "'", fs::absolute(file).parent_path()});
    }
  }
}

const Wish* UserConfig::last(std::string_view key, const std::function<bool(const Wish&)>& counts) const {
  const auto at =
      std::find_if(wishes_.rbegin(), wishes_.rend(), [&](const Wish& w) { return w.key == key && counts(w); });
  return at == wishes_.rend() ? nullptr : &*at;
}

const Wish* UserConfig::find(std::string_view key) const {
  return last(key, [](const Wish& wish) { return !wish.replaced; });
}
const Wish* UserConfig::find_in_file(std::string_view key) const {
  return last(key, [](const Wish& wish) { return wish.from_file; });
}
const Wish* UserConfig::find_on_command_line(std::string_view key) const {
  return last(key, [](const Wish& wish) { return !wish.from_file; });
}

namespace {

constexpr std::array<std::string_view, 3> kWholeSections = {"strategy", "optimizer", "schedule"};

std::string_view section_of(const Wish& wish) { return std::string_view(wish.key).substr(0, wish.key.find('.')); }

bool is_whole(const Wish& wish) {
  return std::find(kWholeSections.begin(), kWholeSections.end(), section_of(wish)) != kWholeSections.end();
}

bool names_any_of(const std::vector<Wish>& wishes, const Wish& of) {
  const bool whole = is_whole(of);
  return std::any_of(wishes.begin(), wishes.end(),
                     [&](const Wish& wish) { return whole ? section_of(wish) == section_of(of) : wish.key == of.key; });
}

}  // namespace

void UserConfig::put_foreign(std::vector<Wish> given, std::vector<Wish> presets) {
  std::vector<Wish> file, words;
  for (Wish& wish : wishes_) (wish.from_file ? file : words).push_back(std::move(wish));
  std::erase_if(presets, [&](const Wish& wish) {
    return names_any_of(file, wish) && !(is_whole(wish) && names_any_of(given, wish));
  });
  std::erase_if(file, [&](const Wish& wish) { return names_any_of(given, wish); });
  wishes_.clear();
  for (std::vector<Wish>* layer : {&presets, &file, &given, &words})
    std::move(layer->begin(), layer->end(), std::back_inserter(wishes_));
}

UserConfig UserConfig::of_file() const {
  UserConfig file;
  std::copy_if(wishes_.begin(), wishes_.end(), std::back_inserter(file.wishes_),
               [](const Wish& wish) { return wish.from_file && !wish.replaced; });
  return file;
}

std::vector<std::string> UserConfig::replace_in_file(const std::function<bool(const Wish&)>& is_replaced) {
  std::vector<std::string> keys;
  for (Wish& wish : wishes_) {
    if (!wish.from_file || wish.replaced || !is_replaced(wish)) continue;
    wish.replaced = true;
    if (!wish.value.is_null() && find_on_command_line(wish.key) == nullptr) keys.push_back(wish.key);
  }
  return keys;
}

}  // namespace ddhost
