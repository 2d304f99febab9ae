// SPDX-License-Identifier: Apache-2.0
//
// plugin/library.hpp: a plugin library in memory: loaded, negotiated, checked and never unloaded.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ddh/abi.h"
#include "engine/calls/plugin.hpp"
#include "plugin/foreign_library.hpp"

namespace ddhost {

// Gives the host's table for an interface id, or nullptr.
using InterfaceLookup = const void* (*)(const char* id);

// The answer to a request for an interface that the host lacks.
enum class MissingInterfaces {
  kRefuse,
  kPretend,  // an empty table: the library is only inspected, never run
};

// The host object for a plugin's entry: enough to negotiate, without a rank.
class ProbeHost {
 public:
  ProbeHost(InterfaceLookup lookup, MissingInterfaces missing);
  ProbeHost(const ProbeHost&) = delete;
  ProbeHost& operator=(const ProbeHost&) = delete;
  [[nodiscard]] const ddh_host& host() const { return host_; }

 private:
  InterfaceLookup lookup_;
  MissingInterfaces missing_;
  ddh_host host_{};
};

// Sets the environment variables of the libraries that a plugin was built with.
void set_variables_of_libraries(const std::filesystem::path& file, const LibraryLimits& limits);
// The same, and loads those that may have a folder of their own: they are large, and a child process then inherits them.
void prepare_libraries_of(const std::filesystem::path& file, const LibraryLimits& limits);

class Library {
 public:
  // Loads an absolute path. Error: one sentence that names the file and the reason.
  static Library load(const std::filesystem::path& file, InterfaceLookup lookup,
                      MissingInterfaces missing = MissingInterfaces::kRefuse);

  [[nodiscard]] const std::filesystem::path& file() const { return file_; }
  [[nodiscard]] const ddh_module& module() const { return *module_; }
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  Library() = default;

  std::filesystem::path file_;
  const ddh_module* module_ = nullptr;
  std::vector<std::string> warnings_;
};

}  // namespace ddhost
