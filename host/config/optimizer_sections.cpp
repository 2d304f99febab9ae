// SPDX-License-Identifier: Apache-2.0
#include "config/optimizer_sections.hpp"

#include <algorithm>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr const char *kFirst = "optimizer", *kScheduleSection = "schedule";

void check_names(const std::vector<std::string>& names) {
  if (names.front() != kFirst)
    ddh::fail(DDH_INVALID_ARGUMENT, "train.optimizers begins with '", names.front(),
              "'; the first section must be 'optimizer', and further sections follow it");
  for (size_t i = 1; i < names.size(); ++i) {
    const std::string& name = names[i];
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), name) !=
        names.begin() + static_cast<std::ptrdiff_t>(i))
      ddh::fail(DDH_ALREADY_EXISTS, "train.optimizers names '", name, "' twice; each optimizer has its own section");
    const bool is_plain = name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
    if (is_plain && name.starts_with(kFurtherOptimizer) && name.size() > kFurtherOptimizer.size()) continue;
    ddh::fail(DDH_INVALID_ARGUMENT, "train.optimizers names '", name,
              "', which can't name a section; use optimizer_ and a word of lower-case letters, digits and _");
  }
}

}  // namespace

std::vector<std::string> optimizer_sections(const UserConfig& user) {
  const Wish* wish = user.find("train.optimizers");
  std::vector<std::string> names;
  const bool is_list = wish != nullptr && wish->value.is_array() && !wish->value.empty();
  if (!is_list || !std::all_of(wish->value.begin(), wish->value.end(), [](const Json& v) { return v.is_string(); }))
    return {kFirst};  // not given, or refused by the schema
  for (const Json& name : wish->value) names.push_back(name.get<std::string>());
  check_names(names);
  return names;
}

std::vector<std::string> schedule_sections(const UserConfig& user) {
  const Wish* wish = user.find("train.phases");
  std::vector<std::string> names;
  if (wish == nullptr || !wish->value.is_array()) return names;  // not given, or refused by the schema
  for (const Json& phase : wish->value) {
    if (!phase.is_object() || !phase.contains("schedule") || phase["schedule"].is_null()) continue;
    const Json& value = phase["schedule"];
    const std::string name = value.is_string() ? value.get<std::string>() : "";
    if (name == kScheduleSection || std::find(names.begin(), names.end(), name) != names.end()) continue;
    const bool is_plain = name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
    if (!is_plain || !name.starts_with(kFurtherSchedule) || name.size() == kFurtherSchedule.size())
      ddh::fail(DDH_INVALID_ARGUMENT, "a phase of train.phases has schedule = ", shown(value),
                ", which can't name a section; use schedule, or schedule_ and a word of lower-case ",
                "letters, digits and _, such as schedule_kg, and give its type there");
    if (user.find(name + ".type") == nullptr)
      ddh::fail(DDH_INVALID_ARGUMENT, "a phase of train.phases has schedule = ", shown(value), ", but ", name,
                ".type is not given; give it, or correct the name");
    names.push_back(name);
  }
  return names;
}

namespace {

// Sections with the options of `first`, after it.
void add_like(std::vector<Section>& sections, const char* first, const std::vector<std::string>& names) {
  const auto at =
      std::find_if(sections.begin(), sections.end(), [&](const Section& section) { return section.name == first; });
  std::vector<Section> further;
  for (const std::string& name : names) further.push_back({name, at->schema, ""});
  sections.insert(at + 1, further.begin(), further.end());
}

}  // namespace

std::vector<Section> run_sections(const UserConfig& user) {
  std::vector<Section> sections = host_sections();
  const std::vector<std::string> optimizers = optimizer_sections(user);
  add_like(sections, kFirst, {optimizers.begin() + 1, optimizers.end()});
  add_like(sections, kScheduleSection, schedule_sections(user));
  return sections;
}

}  // namespace ddhost
