// SPDX-License-Identifier: Apache-2.0
//
// plugin/check_module.hpp: negotiation with a library: checks that its headers are compatible with this host's, and
// that the result of its entry is well formed. Every refusal is one sentence that names the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "ddh/abi.h"
#include "plugin/elf_note.hpp"

namespace ddhost {

// Throws "plugin '<file>' <why>".
[[noreturn]] void refuse_plugin(const std::filesystem::path& file, const std::string& why);

// Whether a major version is never loaded: before the freeze, major 1 was the first draft.
[[noreturn]] void refuse_major(const std::filesystem::path& file, int major);

// The reaction to a header checksum that differs from the host's.
struct HeaderVerdict {
  enum class Kind { kFine, kWarn, kRefuse } kind = Kind::kFine;
  std::string sentence;
};
// Before the freeze (major 0) other headers mean other layouts. From major 1 on layouts only grow, so the same version
// with other headers only gets a warning. `minor` is the plugin's.
HeaderVerdict judge_headers(int host_major, int host_minor, int minor, uint64_t checksum, uint64_t host_checksum);

// Checks the file's note before the file is loaded.
void check_note(const std::filesystem::path& file, const PluginNote& note);

// Checks that the loaded library offers the plugins that its note lists. They are found by the note, so another plugin
// would run under their name.
void check_note_of_module(const std::filesystem::path& file, const PluginNote& note, const ddh_module& module);

// Checks the result of the entry. Returns the warning about its headers, or "".
std::string check_module(const std::filesystem::path& file, const ddh_module& module);

}  // namespace ddhost
