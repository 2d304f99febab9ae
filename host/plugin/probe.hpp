// SPDX-License-Identifier: Apache-2.0
//
// plugin/probe.hpp: inspects a library without running its code in this process: a child loads it and sends its
// description. `ddhost list` and `ddhost inspect` use it. A run uses it before it loads a library in-process.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "plugin/library.hpp"

namespace ddhost {

// The contents of a ddh_desc. Its texts are shortened, but for the schema.
struct PluginFacts {
  int32_t kind = 0;
  std::string id, version, summary;
  std::vector<std::string> needs, wants;
  std::optional<std::string> config_schema;
  uint64_t caps = 0, uses = 0, understands = 0;
  std::vector<std::string> uses_ids, understands_ids;
  std::string vendor, url, license;
};

// The contents of a ddh_module.
struct LibraryFacts {
  int abi_major = 0;
  uint32_t abi_minor = 0, min_host_minor = 0;
  std::vector<ForeignLibrary> libraries;
  std::vector<PluginFacts> plugins;
  std::vector<std::string> warnings;
};

PluginFacts facts_of(const ddh_desc& desc);

// The time limit for loading a library: LibTorch takes a second, or several from a cold disk.
constexpr std::chrono::milliseconds kProbeLimit = std::chrono::seconds(20);

// The description of the library. Error: why it can't be used, as from Library::load; or that loading it crashed, ended
// the process or took longer than `limit`.
LibraryFacts probe(const std::filesystem::path& file, InterfaceLookup lookup, MissingInterfaces missing,
                   std::chrono::milliseconds limit = kProbeLimit);

// What a library says, or why it can't be used.
struct Probed {
  std::filesystem::path file;
  std::optional<LibraryFacts> facts;
  ddh_rc code = DDH_OK;
  std::string problem;
  // Throws the problem, if there is one.
  const LibraryFacts& get() const;
};

// The same for several files, in their order. A large library that plugins of a folder need, such as LibTorch, is loaded once.
std::vector<Probed> probe_all(const std::vector<std::filesystem::path>& files, InterfaceLookup lookup,
                              MissingInterfaces missing);

}  // namespace ddhost
