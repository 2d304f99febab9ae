// SPDX-License-Identifier: Apache-2.0
//
// cli/list.cpp: `ddhost list`.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iomanip>
#include <map>
#include <ostream>
#include <sstream>
#include <vector>

#include "base/json.hpp"
#include "base/terminal.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/words/known_options.hpp"
#include "ddh/sdk/plugin.hpp"
#include "plugin/probe.hpp"

namespace ddhost {

namespace {

struct Listed {
  PluginFacts plugin;
  std::filesystem::path file;
};

}  // namespace

int list_plugins(const Registry& registry, std::ostream& out, const std::string& kind, bool as_json) {
  std::vector<Listed> plugins;
  for (const Plugin& plugin : registry.built_in()) plugins.push_back({facts_of(*plugin.desc), plugin.file});
  std::vector<std::string> broken;
  const auto files = kind.empty() ? registry.all_files() : registry.files_of(kind_named(kind));
  for (const Probed& one : probe_all(files, registry.lookup(), MissingInterfaces::kRefuse)) {
    if (!one.facts) {
      broken.push_back(one.problem);
      continue;
    }
    for (const PluginFacts& plugin : one.facts->plugins) plugins.push_back({plugin, one.file});
  }
  if (!kind.empty()) std::erase_if(plugins, [&](const Listed& one) { return kind_name(one.plugin.kind) != kind; });
  // A stable sort: of two libraries with the same plugin, the one that is searched first comes first.
  const auto key = [](const Listed& listed) { return std::pair(listed.plugin.kind, listed.plugin.id); };
  std::stable_sort(plugins.begin(), plugins.end(), [&](const Listed& a, const Listed& b) { return key(a) < key(b); });
  std::map<std::pair<int32_t, std::string>, std::filesystem::path> first;
  Json json = {{"plugins", Json::array()}, {"not_usable", broken}};
  const size_t columns = terminal_columns(STDOUT_FILENO, SIZE_MAX);
  for (const Listed& listed : plugins) {
    const auto [at, is_first] = first.emplace(key(listed), listed.file);
    json["plugins"].push_back({{"kind", kind_name(listed.plugin.kind)},
                               {"id", listed.plugin.id},
                               {"version", listed.plugin.version},
                               {"summary", listed.plugin.summary},
                               {"file", listed.file.string()}});
    if (!is_first) json["plugins"].back()["also_in"] = at->second.string();
    if (as_json) continue;
    std::ostringstream text;
    text << std::left << std::setw(10) << kind_name(listed.plugin.kind) << ' ' << std::setw(14) << listed.plugin.id
         << ' ' << std::setw(8) << listed.plugin.version << ' ' << listed.plugin.summary;
    if (!is_first)
      text << " [duplicate in " << shown_text(listed.file.string()) << ", also in " << shown_text(at->second.string())
           << ": the name is refused, give a path]";
    out << (columns == SIZE_MAX ? text.str() : wrapped(text.str(), columns, 4));
    out << '\n';
  }
  if (as_json) {
    out << json_document(json);
    return 0;
  }
  if (plugins.empty() && broken.empty()) {
    out << "no plugins found; searched";
    for (const std::filesystem::path& folder : registry.folders()) out << ' ' << shown_text(folder.string());
    out << "\n(set DDHOST_PLUGIN_PATH to search elsewhere)\n";
  }
  for (const std::string& reason : broken) out << "not usable: " << plain_text(reason) << '\n';
  return 0;
}

}  // namespace ddhost
