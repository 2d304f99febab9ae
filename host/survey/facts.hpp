// SPDX-License-Identifier: Apache-2.0
//
// survey/facts.hpp: what a host says of itself before a run: its program, plugins, memory and limits, and which of the files
// that the run needs it sees.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.hpp"

namespace ddhost {

struct FactsWanted {
  std::filesystem::path folder;      // where the run was started
  std::filesystem::path mark;        // a file that the asking host has put beside run.dir; "": none
  std::string mark_text;             // its content
  std::vector<std::string> plugins;  // files to compare by their content
  std::vector<std::string> files;    // that must exist
};
Json to_json(const FactsWanted& wanted);
FactsWanted facts_wanted(const Json& json);

// What a host has answered.
struct Facts {
  std::string host, program, program_hash;
  int64_t cores = 0;
  uint64_t memory = 0, free_memory = 0;  // bytes
  uint64_t open_files = 0;               // most descriptors of a process
  std::string locked_memory;             // most that a process may lock: "8.0 MiB", "unlimited"
  bool has_folder = false, sees_mark = false;
  std::vector<std::string> hashes;  // of FactsWanted::plugins; "": there is no such file
  std::vector<bool> has_file;       // of FactsWanted::files
};
Facts own_facts(const FactsWanted& wanted);
Json to_json(const Facts& facts);
Facts facts_of(const Json& json);

// This host's clock.
double seconds_since_1970();

// SHA-256 of a file as text; "": it can't be read.
std::string hash_of_file(const std::filesystem::path& file);

// The nearest folder above a path that exists, or the path itself.
std::filesystem::path existing_folder(std::filesystem::path path);

// Bytes per second into a file without a name in the folder, written through to the disk. Error: it can't be written.
double write_rate(const std::filesystem::path& folder);

}  // namespace ddhost
