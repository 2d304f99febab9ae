// SPDX-License-Identifier: Apache-2.0
#include "config/launchers.hpp"

#include <algorithm>

#include "config/compat.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

bool is_texts(const Json& list) {
  return list.is_array() && std::all_of(list.begin(), list.end(), [](const Json& item) { return item.is_string(); });
}

bool has_texts(const Json& entry, const std::vector<std::string>& names) {
  return entry.is_object() && std::all_of(names.begin(), names.end(), [&](const std::string& name) {
           return entry.contains(name) && entry[name].is_string();
         });
}

void check(const std::string& file, const Json& entry) {
  const bool is_object = entry.is_object() && entry.contains("name") && entry["name"].is_string();
  bool is_whole = is_object && entry.contains("if") && is_texts(entry["if"]) && !entry["if"].empty();
  for (const char* list : {"unless", "job"}) is_whole = is_whole && is_texts(entry.value(list, Json::array()));
  for (const char* text : {"task", "tasks", "local_tasks", "toward", "refused"})
    is_whole = is_whole && (!entry.contains(text) || entry[text].is_string());
  is_whole = is_whole && entry.contains("tasks") && (entry.contains("task") || entry.contains("refused"));
  if (!is_whole)
    ddh::fail(DDH_INVALID_ARGUMENT, "the table of names ", file,
              " is ill-formed: a launcher needs the texts name, task and ",
              "tasks, and a list `if` of variables, but it has ", shown(entry), "; fix the table");
}

std::vector<CompatTable> all_tables(const std::vector<std::filesystem::path>& folders) {
  std::vector<CompatTable> tables = compat_tables_in(folders);
  tables.insert(tables.end(), compat_tables().begin(), compat_tables().end());
  return tables;
}

}  // namespace

std::vector<std::string> exported_variables(const std::vector<std::filesystem::path>& folders) {
  std::vector<std::string> out;
  for (const CompatTable& table : all_tables(folders)) {
    const Json names = table.groups.value(kExportGroup, Json::array());
    if (!is_texts(names))
      ddh::fail(DDH_INVALID_ARGUMENT, "the table of names ", table.file,
                " is ill-formed: 'export' is no list of texts; fix it");
    for (const Json& name : names) out.push_back(name.get<std::string>());
  }
  return out;
}

std::vector<ConnectionText> connection_texts(const std::vector<std::filesystem::path>& folders) {
  std::vector<ConnectionText> out;
  for (const CompatTable& table : all_tables(folders))
    for (const Json& entry : table.groups.value(kConnectionGroup, Json::array())) {
      if (!has_texts(entry, {"says", "is", "cure"}))
        ddh::fail(DDH_INVALID_ARGUMENT, "the table of names ", table.file,
                  " is ill-formed: a connection needs the texts says, is and cure, but it has ", shown(entry),
                  "; fix the table");
      out.push_back({entry["says"], entry["is"], entry["cure"]});
    }
  return out;
}

std::vector<BatchSystem> batch_systems() {
  std::vector<BatchSystem> out;
  for (const CompatTable& table : compat_tables())
    for (const Json& entry : table.groups.value(kBatchGroup, Json::array())) {
      if (!has_texts(entry, {"name", "help", "run_dir"}) || !is_texts(entry.value("script", Json())))
        ddh::fail(
            DDH_INVALID_ARGUMENT, "the table of names ", table.file,
            " is ill-formed: a batch system needs the texts name, help and run_dir, and the lines of a script; fix it");
      out.push_back({entry["name"], entry["help"], entry["run_dir"], entry["script"]});
    }
  return out;
}

std::vector<Json> launchers(const std::vector<std::filesystem::path>& folders) {
  std::vector<Json> out;
  for (const CompatTable& table : all_tables(folders))
    for (const Json& entry : table.groups.value(kLauncherGroup, Json::array())) {
      check(table.file, entry);
      out.push_back(entry);
    }
  return out;
}

}  // namespace ddhost
