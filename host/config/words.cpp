// SPDX-License-Identifier: Apache-2.0
#include "config/words.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/text.hpp"
#include "config/compat.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

// "learning_rate" for "--Learning-Rate".
std::string plain_word(std::string_view word) {
  std::string out;
  for (const char c : word) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0)
      out += static_cast<char>(std::tolower(byte));
    else if (!out.empty() && out.back() != '_')
      out += '_';
  }
  while (!out.empty() && out.back() == '_') out.pop_back();
  return out;
}

// Calls `see(words)` with each table's part at this path.
template <class See>
void for_each_table(const std::string& group, const std::string& part, See&& see) {
  for (const CompatTable& table : compat_tables()) {
    const auto of_group = table.groups.find(group);
    if (of_group == table.groups.end()) continue;
    const auto of_part = of_group->find(part);
    if (of_part != of_group->end()) see(*of_part);
  }
}

std::string looked_up(const Json& words, const std::string& word) {
  for (const auto& [theirs, ours] : words.items())
    if (plain_word(theirs) == word) return ours.get<std::string>();
  return "";
}

// "a or b" as its parts.
std::vector<std::string> alternatives(std::string text) {
  constexpr std::string_view kOr = " or ";
  std::vector<std::string> out;
  for (size_t at = text.find(kOr); at != std::string::npos; at = text.find(kOr)) {
    out.push_back(text.substr(0, at));
    text.erase(0, at + kOr.size());
  }
  out.push_back(text);
  return out;
}

// A word that means something else behind the dot of another program's key: "image.size".
bool is_common_word(const std::string& word) {
  constexpr std::array<std::string_view, 6> kCommon = {"size", "weights", "data", "v", "checkpoint", "dataset"};
  return std::find(kCommon.begin(), kCommon.end(), word) != kCommon.end();
}

// "false", "0": the value of a switch that is off.
bool is_off(const std::string& value) {
  constexpr std::array<std::string_view, 5> kOff = {"false", "0", "no", "off", "none"};
  return std::find(kOff.begin(), kOff.end(), plain_word(value)) != kOff.end();
}

// "model.size=S or model.size=small" for "model.size=S or small".
std::string as_choices(const std::string& ours) {
  const std::vector<std::string> all = alternatives(ours);
  const std::string key = ours.substr(0, ours.find('=') + 1);
  std::string out = all.front();
  for (size_t i = 1; i < all.size(); ++i) out += " or " + key + all[i];
  return out;
}

// The entry of this part for an option: the one for its whole name wins over the one for what follows its last dot, and the
// one with its value over that without.
std::string entry_of_option(const std::string& part, std::string_view name, const std::string& value) {
  const size_t dot = name.rfind('.');
  const std::string whole = plain_word(name);
  const std::string last = plain_word(dot == std::string_view::npos ? name : name.substr(dot + 1));
  const std::string with = "_" + plain_word(value);
  std::string out;
  std::vector<std::string> forms = {whole + with, whole};
  if (!is_common_word(last)) forms.insert(forms.end(), {last + with, last});
  for (const std::string& word : forms)
    for_each_table("words", part, [&](const Json& words) {
      if (out.empty()) out = looked_up(words, word);
    });
  return out;
}

// Whether the word is the name of an option alone: no value, and no section.
bool is_plain_name(const std::string& word) { return word.find_first_of("=.") == std::string::npos; }

std::string with_value(std::string text, const std::string& value) {
  if (const size_t star = text.find('*'); star != std::string::npos) {
    const bool is_whole = star == 0 || text[star - 1] == '=' || text[star - 1] == ' ';
    text.replace(star, 1, !value.empty() ? plain_text(value, kShownValue) : is_whole ? "VALUE" : "N");
  }
  return text;
}

[[noreturn]] void ill_formed_table(const std::string& file, const std::string& name) {
  ddh::fail(DDH_INVALID_ARGUMENT, "the table of names ", file, " is ill-formed: '", name,
            "' does not hold objects of texts; fix the table");
}

void require_texts(const std::string& file, const std::string& name, const Json& words) {
  if (!words.is_object()) ill_formed_table(file, name);
  for (const auto& [word, ours] : words.items())
    if (!ours.is_string()) ill_formed_table(file, name + "." + word);
}

void require_objects_of_texts(const std::string& file, const std::string& name, const Json& all) {
  if (!all.is_object()) ill_formed_table(file, name);
  for (const auto& [key, words] : all.items()) require_texts(file, name + "." + key, words);
}

void require_list_of_texts(const std::string& file, const std::string& name, const Json& list) {
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), [](const Json& one) { return one.is_string(); }))
    ill_formed_table(file, name);
}

// Whether `word` is one of `words`, with blanks between them.
bool is_word_of(const std::string& words, const std::string& word) {
  return (" " + words + " ").find(" " + word + " ") != std::string::npos;
}

}  // namespace

std::string our_command(std::string_view word) {
  std::string out;
  for_each_table("words", "commands", [&](const Json& words) {
    if (out.empty()) out = looked_up(words, plain_word(word));
  });
  return out;
}

std::string our_option(std::string_view name, const std::string& value) {
  const std::string ours = entry_of_option("options", name, value);
  const size_t star = ours.find("=*");
  // The value may be another program's word, too.
  const std::string both = star == std::string::npos ? "" : our_value(ours.substr(0, star), value);
  return both.empty() ? with_value(ours, value) : both + ours.substr(star + 2);
}

std::string hint_of_option(std::string_view name, const std::string& value) {
  const std::string entry = entry_of_option("options", name, value);
  if (entry.empty()) return entry_of_option("sentences", name, value);
  const bool is_of_value = entry != entry_of_option("options", name, "");
  if (is_off(value) && !is_of_value && entry.find('*') == std::string::npos) return "leave it out";
  return "here it is " + as_choices(our_option(name, value));
}

std::string nearest_option_word(std::string_view name) {
  std::vector<std::string> all;
  for_each_table("words", "options", [&](const Json& words) {
    for (const auto& [word, ours] : words.items())
      if (is_plain_name(word)) all.push_back(word);
  });
  constexpr size_t kMistakes = 2;
  const std::string plain = plain_word(name), near = nearest(plain, all);
  return near.empty() || edit_distance(plain, near) > kMistakes ? "" : near;
}

std::string our_value(const std::string& key, std::string_view value) {
  std::string out;
  for_each_table("words", "values", [&](const Json& values) {
    if (out.empty() && values.contains(key)) out = looked_up(values[key], plain_word(value));
  });
  return out.empty() ? "" : key + "=" + out;
}

std::string nearest_value_word(const std::string& key, std::string_view value) {
  std::vector<std::string> all;
  for_each_table("words", "values", [&](const Json& values) {
    if (!values.contains(key)) return;
    for (const auto& [word, ours] : values[key].items()) all.push_back(plain_word(word));
  });
  return nearest(plain_word(value), all);
}

std::string legal_value(const std::string& key, std::string_view word, const std::vector<std::string>& legal) {
  const std::string ours = our_value(key, word);
  if (ours.empty()) return "";
  const std::vector<std::string> values = alternatives(ours.substr(key.size() + 1));
  const auto at = std::find_first_of(legal.begin(), legal.end(), values.begin(), values.end());
  return at == legal.end() ? "" : *at;
}

std::vector<std::string> words_of_option(const std::string& key) {
  std::vector<std::string> out;
  for_each_table("words", "options", [&](const Json& words) {
    for (const auto& [word, ours] : words.items())
      if (ours.get<std::string>().starts_with(key + "=") && is_plain_name(word) && !key.ends_with("." + word))
        out.push_back(word);
  });
  return out;
}

std::vector<std::string> words_of_value(const std::string& key, const std::string& value) {
  std::vector<std::string> out;
  for_each_table("words", "values", [&](const Json& values) {
    if (!values.contains(key)) return;
    for (const auto& [word, ours] : values[key].items())
      if (ours == Json(value) && word != value) out.push_back(word);
  });
  return out;
}

Cost cost_of(const std::string& kind, const std::string& name) {
  Cost out;
  for_each_table("costs", kind, [&](const Json& costs) {
    for (const auto& [names, cost] : costs.items())
      if (is_word_of(names, name))
        out = {cost.value("bytes", ""), cost.value("time", ""), cost.value("example", ""), cost.value("with", ""),
               cost.value("smoke", "")};
  });
  if (kind == "option")
    for_each_table("costs", "examples", [&](const Json& examples) {
      if (!examples.contains(name)) return;
      out.example = examples[name].value("value", "");
      out.with = examples[name].value("with", "");
    });
  if (kind != "option" || !out.bytes.empty() || !out.time.empty()) return out;
  const std::string section = name.substr(0, name.find('.'));
  for_each_table("costs", "none", [&](const Json& free) {
    if (std::any_of(free.begin(), free.end(), [&](const Json& one) { return one == name || one == section; }))
      out.bytes = out.time = "none";
  });
  return out;
}

void check_words(const std::string& file, const Json& table) {
  if (const auto words = table.find("words"); words != table.end()) {
    if (!words->is_object()) ill_formed_table(file, "words");
    for (const auto& [part, content] : words->items())
      part == "values" ? require_objects_of_texts(file, "words.values", content)
                       : require_texts(file, "words." + part, content);
  }
  if (const auto costs = table.find("costs"); costs != table.end()) {
    if (!costs->is_object()) ill_formed_table(file, "costs");
    for (const auto& [kind, content] : costs->items())
      kind == "none" ? require_list_of_texts(file, "costs.none", content)
                     : require_objects_of_texts(file, "costs." + kind, content);
  }
}

}  // namespace ddhost
