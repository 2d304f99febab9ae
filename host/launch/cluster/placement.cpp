// SPDX-License-Identifier: Apache-2.0
#include "launch/cluster/placement.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr const char* kNone = "none";

std::optional<std::string> variable(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

bool are_set(const Json& entry, const char* list) {
  const Json names = entry.value(list, Json::array());
  return std::all_of(names.begin(), names.end(),
                     [](const Json& name) { return variable(name.get<std::string>()).has_value(); });
}

bool is_any_set(const Json& entry, const char* list) {
  const Json names = entry.value(list, Json::array());
  return std::any_of(names.begin(), names.end(),
                     [](const Json& name) { return variable(name.get<std::string>()).has_value(); });
}

bool applies(const Json& entry) { return are_set(entry, "if") && !is_any_set(entry, "unless"); }

// The number in the variable that the entry names under `key`; nullopt: it names none, or the variable is not set.
std::optional<int> number(const Json& entry, const char* key) {
  if (!entry.contains(key)) return std::nullopt;
  const std::string name = entry.at(key).get<std::string>();
  const std::optional<std::string> text = variable(name);
  if (!text) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < 0)
    ddh::fail(DDH_INVALID_ARGUMENT, name, "=", plain_text(*text, 100), " is not a number from 0 on, but ",
              entry.at("name").get<std::string>(),
              " places a run by it; start the run through that program, unset the ",
              "variable, or set launch.from=none for a run on this host alone");
  return value;
}

std::string joined_values(const Json& entry, const char* list) {
  std::string text;
  for (const Json& name : entry.value(list, Json::array()))
    text += "-" + variable(name.get<std::string>()).value_or("");
  return text;
}

// For a file's name.
std::string file_name(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool is_plain =
        (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '.' || c == '_';
    out += is_plain ? c : '-';
  }
  return out.substr(0, 200);
}

std::string pair_text(const Json& entry, const char* key, int value) {
  return ddh::str(entry.at(key).get<std::string>(), "=", value);
}

std::optional<Placement> placement_of(const Json& entry) {
  const std::string name = entry.at("name").get<std::string>();
  if (entry.contains("refused")) {
    if (number(entry, "tasks").value_or(1) <= 1) return std::nullopt;
    ddh::fail(DDH_FAILED_PRECONDITION, name, " gave this process ", pair_text(entry, "tasks", *number(entry, "tasks")),
              ", but ", entry.at("refused").get<std::string>(),
              "; or set launch.from=none for a run on this host alone");
  }
  Placement place;
  place.launcher = name;
  place.task = number(entry, "task").value_or(0);
  place.n_tasks = number(entry, "tasks").value_or(1);
  if (place.n_tasks < 1 || place.task >= place.n_tasks)
    ddh::fail(DDH_INVALID_ARGUMENT, pair_text(entry, "task", place.task), " and ",
              pair_text(entry, "tasks", place.n_tasks),
              " contradict each other: tasks count from 0; start the run through ", name,
              ", unset the variables, or set launch.from=none for a run on this host alone");
  const std::optional<int> local = number(entry, "local_tasks");
  if (local && (*local < 1 || *local > place.n_tasks))
    ddh::fail(DDH_INVALID_ARGUMENT, pair_text(entry, "local_tasks", *local), " and ",
              pair_text(entry, "tasks", place.n_tasks), " contradict each other; start the run through ", name,
              ", or unset the variables");
  if (place.n_tasks == 1) return std::nullopt;
  place.is_one_host = local == place.n_tasks;
  place.job = file_name(name + joined_values(entry, "job"));
  if (entry.contains("toward")) place.toward = variable(entry.at("toward").get<std::string>()).value_or("");
  return place;
}

}  // namespace

std::optional<Placement> find_placement(const std::vector<Json>& launchers, const std::string& from) {
  if (from == kNone) return std::nullopt;
  std::string names;
  for (const Json& entry : launchers) {
    const std::string name = entry.at("name").get<std::string>();
    if (names.find(name) == std::string::npos) names += (names.empty() ? "" : ", ") + name;
    if (from != "auto" && from != name) continue;
    if (applies(entry)) return placement_of(entry);
  }
  if (from == "auto") return std::nullopt;
  if ((", " + names + ", ").find(", " + from + ", ") == std::string::npos)
    ddh::fail(DDH_INVALID_ARGUMENT, "launch.from=", plain_text(from, 100),
              " is no known launcher; give auto, none, or one of ", names);
  ddh::fail(DDH_FAILED_PRECONDITION, "launch.from=", from, ", but ", from,
            " has not started this process: its variables are not set; leave launch.from out");
}

}  // namespace ddhost
