// SPDX-License-Identifier: Apache-2.0
//
// plugin/check_module.hpp: negotiation with a library: whether the headers that it was built with fit this host's, and
// whether what its entry returned is well formed. Every refusal is one sentence that names the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "ddh/abi.h"
#include "plugin/elf_note.hpp"

namespace ddhost {

// Throws "plugin '<file>' <why>".
[[noreturn]] void refuse_plugin(const std::filesystem::path& file, const std::string& why);

// Versions of the ABI that are never loaded have no number in common with those that are: major 1 before the freeze was the
// first draft.
[[noreturn]] void refuse_major(const std::filesystem::path& file, int major);

// What is done about a checksum of headers that differs from the host's.
struct HeaderVerdict {
  enum class Kind { kFine, kWarn, kRefuse } kind = Kind::kFine;
  std::string sentence;
};
// Before the freeze (major 0) other headers are other layouts. From major 1 on layouts only grow, so the same version with
// other headers is worth a warning. `minor` is the plugin's.
HeaderVerdict judge_headers(int host_major, int host_minor, int minor, uint64_t checksum, uint64_t host_checksum);

// What the file's note alone tells against loading it.
void check_note(const std::filesystem::path& file, const PluginNote& note);

// What the entry returned. Returns the warning about its headers, or "".
std::string check_module(const std::filesystem::path& file, const ddh_module& module);

}  // namespace ddhost
