// SPDX-License-Identifier: Apache-2.0
//
// plugin/elf_note.hpp: reads from a plugin file, without loading it, its ddhost note and the libraries it needs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ddhost {

struct NotePlugin {
  std::string kind, id;  // "strategy", "zero1"
};

// The contents of DDH_NOTE_JSON (ddh/abi.h).
struct PluginNote {
  int abi_major = 0, abi_minor = 0;
  uint32_t min_host_minor = 0;
  uint32_t torch_version = 0, cuda_version = 0, nccl_version = 0;
  std::string headers;  // checksum in hex
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

// "2.11.0" for 21100; "none" for 0.
std::string torch_version_text(uint32_t version);
// "13.0" for 13000.
std::string cuda_version_text(uint32_t version);
// "2.28.9" for 22809.
std::string nccl_version_text(uint32_t version);

}  // namespace ddhost
