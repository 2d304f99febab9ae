// SPDX-License-Identifier: Apache-2.0
#include "config/run_length.hpp"

#include <algorithm>
#include <string_view>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {

namespace {

bool is_given(const Config& config, const char* key) {
  const std::string value = config.json(key);
  const bool is_empty = value == "null" || value == "[]" || value == "0";
  return config.find(key)->source != "default" && (!is_empty || key == std::string_view("train.steps"));
}

void settle_use_of_programs(Config& config) {
  for (const char* key : {"train.eval_every", "train.eval_every_epochs"}) config.set(key, 0, "derived");
  if (!is_given(config, "train.programs")) return;
  config.set("train.phases", Json::array(), "derived");
  config.set("train.cycles", 1, "derived");
}

}  // namespace

void settle_run_length(Config& config, bool trains) {
  if (!trains) settle_use_of_programs(config);
  if (config.integer("train.eval_every") > 0 && config.integer("train.eval_every_epochs") > 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "train.eval_every=", config.integer("train.eval_every"),
              " and train.eval_every_epochs=", config.integer("train.eval_every_epochs"),
              " both set when the run evaluates; leave one out");
  const bool has_phases = config.json("train.phases") != "[]";
  for (const char* key : {"train.steps", "train.epochs", "train.programs", "train.update_every"})
    if (has_phases && is_given(config, key))
      ddh::fail(DDH_INVALID_ARGUMENT, key, "=", config.json(key),
                " and train.phases exclude each other: phases say which programs run, and how long; leave one out",
                config.find(key)->source == config.find("train.phases")->source
                    ? ""
                    : ", or give train.steps or train.epochs, which replace the file's phases");
  if (!has_phases && config.integer("train.cycles") > 1)
    ddh::fail(DDH_INVALID_ARGUMENT, "train.cycles=", config.integer("train.cycles"),
              " repeats the phases of train.phases, but there are none; give phases, or leave it out");
  if (has_phases) config.set("train.steps", Json(), "derived");
  if (!config.is_given("train.epochs")) return;
  if (config.find("train.steps")->source != "default")
    ddh::fail(DDH_INVALID_ARGUMENT, "train.steps=", config.integer("train.steps"),
              " and train.epochs=", config.integer("train.epochs"), " both set the length of the run; leave one out");
  config.set("train.steps", Json(), "derived");
}

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
