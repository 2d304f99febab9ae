// SPDX-License-Identifier: Apache-2.0
//
// plugin/list.cpp: `ddhost list`.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <iomanip>
#include <map>
#include <ostream>
#include <vector>

#include "ddh/sdk/plugin.hpp"
#include "plugin/commands.hpp"

namespace ddhost {

namespace {

// A damaged library can end the process that loads it: a child tries first.
void require_loadable(const std::filesystem::path& file, Registry& registry) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      registry.load(file);
    } catch (const std::exception&) {  // the parent gets the same sentence
    }
    ::_exit(0);
  }
  int status = 0;
  if (child > 0 && ::waitpid(child, &status, 0) == child && WIFSIGNALED(status))
    ddh::fail(DDH_DATA_LOSS, "'", file.string(), "' is damaged: loading it ends with signal ", WTERMSIG(status),
              "; build or copy it again");
}

}  // namespace

int list_plugins(Registry& registry, std::ostream& out) {
  std::vector<Plugin> plugins = registry.built_in();
  std::vector<std::string> broken;
  for (const std::filesystem::path& file : registry.all_files()) {
    try {
      require_loadable(file, registry);
      const Library& library = registry.load(file);
      for (uint32_t i = 0; i < library.module().n_desc; ++i)
        plugins.push_back({&library.module(), library.module().desc[i], library.file()});
    } catch (const ddh::Error& error) {
      broken.emplace_back(error.what());
    }
  }
  // Stable: of two libraries with the same plugin, the one that a name finds comes first.
  std::stable_sort(plugins.begin(), plugins.end(), [](const Plugin& a, const Plugin& b) {
    return std::pair(a.desc->kind, a.id()) < std::pair(b.desc->kind, b.id());
  });
  std::map<std::pair<int32_t, std::string>, std::filesystem::path> first;
  for (const Plugin& plugin : plugins) {
    const auto [at, is_first] = first.emplace(std::pair(plugin.desc->kind, plugin.id()), plugin.file);
    out << std::left << std::setw(10) << kind_name(plugin.desc->kind) << ' ' << std::setw(14) << plugin.id() << ' '
        << std::setw(8) << plugin.desc->version << ' ' << plugin.desc->summary;
    if (!is_first)
      out << " [duplicate in " << plugin.file.string() << "; the name means " << at->second.string() << "]";
    out << '\n';
  }
  if (plugins.empty() && broken.empty()) {
    out << "no plugins found; searched";
    for (const std::filesystem::path& folder : registry.folders()) out << ' ' << folder.string();
    out << "\n(set DDHOST_PLUGIN_PATH to search elsewhere)\n";
  }
  for (const std::string& reason : broken) out << "not usable: " << reason << '\n';
  return 0;
}

}  // namespace ddhost
