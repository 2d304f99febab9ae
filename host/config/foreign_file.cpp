// SPDX-License-Identifier: Apache-2.0
#include "config/foreign_file.hpp"

#include <algorithm>
#include <cctype>
#include <optional>
#include <sstream>
#include <string_view>

#include "config/compat.hpp"

namespace ddhost {
namespace {

constexpr const char* kNotAll = "; the file's other settings are not among these";
constexpr const char* kOtherNames =
    "; the sections strategy, optimizer and schedule accept that program's names (docs/configuration.md, \"Names of "
    "other tools\")";

// The "key: value" lines of a YAML file, at any depth.
Json yaml_lines(const std::string& text) {
  Json out = Json::object();
  std::istringstream in(text);
  const auto trimmed = [](const std::string& part) {
    const std::string_view around = " \t\r'\"";
    const size_t begin = part.find_first_not_of(around), end = part.find_last_not_of(around);
    return begin == std::string::npos ? std::string() : part.substr(begin, end - begin + 1);
  };
  for (std::string line; std::getline(in, line);) {
    line = line.substr(0, std::min(line.find(" #"), line.find('#') == 0 ? 0 : std::string::npos));  // a comment
    const size_t colon = line.find(':');
    if (colon != std::string::npos) out[trimmed(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
  }
  return out;
}

// The values of a JSON file at any depth, as those of yaml_lines.
void add_lines(const Json& object, Json& out) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object())
      add_lines(value, out);
    else
      out[key] = value;
  }
}

// The value at "zero_optimization.stage"; nullptr: there is none.
const Json* value_at(const Json& root, const std::string& path) {
  const Json* at = &root;
  std::istringstream in(path);
  for (std::string name; std::getline(in, name, '.');) {
    if (!at->is_object() || !at->contains(name)) return nullptr;
    at = &(*at)[name];
  }
  return at;
}

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

// Whether the value is the wanted text, or one of several; "*" is any value.
bool is_wanted(const Json* value, const Json& wanted) {
  if (value == nullptr) return false;
  if (wanted == "*") return true;
  const auto is_it = [&](const Json& text) { return text == text_of(*value); };
  return wanted.is_array() ? std::any_of(wanted.begin(), wanted.end(), is_it) : is_it(wanted);
}

// The words that an entry of `advice` gives for the file; nullopt: it does not apply.
std::optional<std::string> words_of(const Json& entry, const Json& root) {
  const Json when = entry.value("when", Json::object());
  for (const auto& [path, wanted] : when.items())
    if (!is_wanted(value_at(root, path), wanted)) return std::nullopt;
  std::string words = entry.value("gives", "");
  if (!entry.contains("of")) return words;
  const Json* const value = value_at(root, entry.value("of", ""));
  // "auto" is left to the default.
  if (value == nullptr || value->is_structured() || value->is_null() || *value == "auto" || text_of(*value).empty())
    return std::nullopt;
  std::string text = text_of(*value);
  // Only what is safe to paste into a shell, and short.
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-/";
  if (text.size() > 64 || text.find_first_not_of(kPlain) != std::string::npos || value->is_boolean())
    return std::nullopt;
  if (entry.value("lower_case", false))
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const size_t star = words.find('*');
  return star == std::string::npos ? words : words.replace(star, 1, text);
}

// The first entry of each list that applies counts.
std::string advice_of(const Json& advice, const Json& root) {
  std::string all;
  for (const Json& list : advice) {
    for (const Json& entry : list) {
      const std::optional<std::string> words = words_of(entry, root);
      if (!words) continue;
      all += (all.empty() ? "" : " ") + *words;
      break;
    }
  }
  return all;
}

// Whether the file has every key of "has_all", and one of "has_any".
bool is_of(const Json& file, const Json& root) {
  const auto has = [&](const Json& key) { return root.contains(key.get<std::string>()); };
  const Json all = file.value("has_all", Json::array()), any = file.value("has_any", Json::array());
  return root.is_object() && std::all_of(all.begin(), all.end(), has) && std::any_of(any.begin(), any.end(), has);
}

}  // namespace

std::string foreign_file_text(const std::string& text, const Json& root) {
  Json lines = Json::object();
  if (root.is_object())
    add_lines(root, lines);
  else
    lines = yaml_lines(text);
  for (const CompatTable& table : compat_tables()) {
    const Json file = table.groups.value("file", Json());
    if (!file.is_object()) continue;
    const Json& read = file.value("at_any_depth", false) ? lines : root;
    if (!is_of(file, read)) continue;
    const std::string advice = advice_of(file.value("advice", Json::array()), read);
    return "is " + file.value("is", "") + ", which --config does not read" +
           (advice.empty() ? "" : "; give instead: " + advice + kNotAll) + kOtherNames;
  }
  return "";
}

}  // namespace ddhost
