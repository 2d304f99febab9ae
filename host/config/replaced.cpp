// SPDX-License-Identifier: Apache-2.0
#include "config/replaced.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "config/given.hpp"
#include "config/run_length.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

// Options of the file that one of the command line excludes.
struct Exclusion {
  std::string_view key;
  std::vector<std::string_view> excludes;
};

const std::array<Exclusion, 7>& exclusions() {
  static const std::array<Exclusion, 7> all = {{
      {"train.phases", {"train.steps", "train.epochs", "train.programs", "train.update_every"}},
      {"train.steps", {"train.epochs", "train.phases", "train.cycles"}},
      {"train.epochs", {"train.steps", "train.phases", "train.cycles"}},
      {"train.eval_every", {"train.eval_every_epochs"}},
      {"train.eval_every_epochs", {"train.eval_every"}},
      {"train.clip_norm", {"train.clip_value"}},
      {"train.clip_value", {"train.clip_norm"}},
  }};
  return all;
}

// Whether the value excludes others: 0 steps do, but 0 elsewhere, an empty list and one cycle stand for "none".
bool has_effect(const Wish* wish) {
  if (wish == nullptr || wish->value.is_null() || wish->value == Json::array()) return false;
  if (wish->key == "train.cycles") return wish->value != 1;
  return wish->value != 0 || wish->key == "train.steps";
}

bool is_in_section(const Wish& wish, const std::string& section) { return wish.key.starts_with(section + "."); }

std::string in_words(const std::vector<std::string>& keys) {
  std::string out;
  for (size_t i = 0; i < keys.size(); ++i) out += (i == 0 ? "" : i + 1 == keys.size() ? " and " : ", ") + keys[i];
  return out;
}

// "train.steps=8 on the command line replaces train.phases and train.cycles of 'kgat.json'"
void replace_excluded(UserConfig& user, const Exclusion& exclusion, std::vector<std::string>& sentences) {
  const Wish* const wish = user.find_on_command_line(exclusion.key);
  if (!has_effect(wish)) return;
  const std::string words = ddh::str(wish->key, "=", shown(wish->value), " on ", wish->source);
  std::string file;
  const std::vector<std::string> keys = user.replace_in_file([&](const Wish& other) {
    file = other.source;
    const auto& excluded = exclusion.excludes;
    return has_effect(&other) && std::find(excluded.begin(), excluded.end(), other.key) != excluded.end();
  });
  if (!keys.empty()) sentences.push_back(ddh::str(words, " replaces ", in_words(keys), " of ", file));
}

// The further sections that the file's list of optimizers, or of phases, names.
std::vector<std::string> sections_in(const Wish* list) {
  std::vector<std::string> names;
  if (list == nullptr || !list->value.is_array()) return names;
  for (const Json& item : list->value) {
    const Json given = item.is_object() ? item.value("schedule", Json()) : item;
    if (!given.is_string()) continue;
    const auto name = given.get<std::string>();
    const bool is_new = std::find(names.begin(), names.end(), name) == names.end();
    if (is_new && name != "optimizer" && name != "schedule") names.push_back(name);
  }
  return names;
}

// The sections that the file itself names, where the run has others.
void replace_sections(UserConfig& user, const std::vector<std::string>& of_file, const std::vector<std::string>& of_run,
                      const char* list, std::vector<std::string>& sentences) {
  for (const std::string& section : of_file) {
    if (std::find(of_run.begin(), of_run.end(), section) != of_run.end()) continue;
    std::string file;
    user.replace_in_file([&](const Wish& wish) {
      if (!is_in_section(wish, section)) return false;
      file = wish.source;
      return true;
    });
    if (!file.empty())
      sentences.push_back(
          ddh::str("section '", section, "' of ", file, " is not used: ", list, " of this run does ", "not name it"));
  }
}

}  // namespace

std::vector<std::string> replace_excluded_options(UserConfig& user) {
  std::vector<std::string> sentences;
  for (const Exclusion& exclusion : exclusions()) replace_excluded(user, exclusion, sentences);
  replace_sections(user, sections_in(user.find_in_file("train.optimizers")), optimizer_sections(user),
                   "train.optimizers", sentences);
  replace_sections(user, sections_in(user.find_in_file("train.phases")), schedule_sections(user), "train.phases",
                   sentences);
  return sentences;
}

std::string choice_of_file(const UserConfig& user, const std::vector<Section>& sections, const std::string& key) {
  std::string choice;
  for (const Given& given : values_given(user.of_file(), sections, /*plugin_sections=*/false))
    if (given.key == key && given.value.is_string()) choice = given.value.get<std::string>();
  return choice;
}

std::vector<std::string> replace_plugin_options(UserConfig& user, const Section& section,
                                                const std::vector<std::string>& kept) {
  return user.replace_in_file([&](const Wish& wish) {
    if (!is_in_section(wish, section.name)) return false;
    const std::string name = wish.key.substr(section.name.size() + 1);
    const bool is_host = section.schema.find(name) != nullptr || section.schema.find_alias(name) != nullptr;
    return !is_host && std::none_of(kept.begin(), kept.end(),
                                    [&](const std::string& prefix) { return (name + ".").starts_with(prefix); });
  });
}

}  // namespace ddhost
