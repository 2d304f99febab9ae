// SPDX-License-Identifier: Apache-2.0
//
// plugin/elf_note.hpp: reads from a plugin file, without loading it, its ddhost note and the libraries it needs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "plugin/foreign_library.hpp"

namespace ddhost {

struct NotePlugin {
  std::string kind, id;  // "strategy", "zero1"
};

// The contents of DDH_NOTE_JSON (ddh/abi.h).
struct PluginNote {
  int abi_major = 0, abi_minor = 0;
  uint32_t min_host_minor = 0;
  std::string headers;  // checksum in hex
  std::vector<ForeignLibrary> libraries;
  std::vector<NotePlugin> plugins;
};

struct ElfFacts {
  std::string problem;              // why the file can't be loaded: "is not an ELF file"; empty: no problem found
  std::vector<std::string> needed;  // DT_NEEDED
  std::string runpath;              // DT_RUNPATH: folders to search for them, with colons
  std::optional<PluginNote> note;
  std::string build_id;  // the linker's bytes; empty: none
};

// Error: the file is missing or can't be read.
ElfFacts read_elf(const std::filesystem::path& file);

}  // namespace ddhost
