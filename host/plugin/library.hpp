// SPDX-License-Identifier: Apache-2.0
//
// plugin/library.hpp: a plugin library in memory: loaded, negotiated, checked and never unloaded.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ddh/abi.h"

namespace ddhost {

// Which interfaces the host has: the table for an id, or nullptr.
using InterfaceLookup = const void* (*)(const char* id);

// What to answer when a plugin asks for an interface that the host lacks.
enum class MissingInterfaces {
  kRefuse,
  kPretend,  // an empty table: the library is only looked at, never run
};

// The host as a plugin's entry sees it: enough to negotiate, with no rank behind it.
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

class Library {
 public:
  // Loads an absolute path. Error: every reason why not, in one sentence that names the file.
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

// One plugin of a library. Everything it points at is static: copies are free and never dangle.
struct Plugin {
  const ddh_module* module = nullptr;
  const ddh_desc* desc = nullptr;
  std::filesystem::path file;

  [[nodiscard]] std::string id() const { return desc->id; }
  [[nodiscard]] bool has_cap(uint64_t cap) const { return (desc->caps & cap) != 0; }
};

// "strategy" for DDH_KIND_STRATEGY; "kind 9" for an unknown one.
std::string kind_name(int32_t kind);
// DDH_KIND_STRATEGY for "strategy", 0 for an unknown word.
int32_t kind_number(std::string_view name);

}  // namespace ddhost
