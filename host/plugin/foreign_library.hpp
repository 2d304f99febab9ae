// SPDX-License-Identifier: Apache-2.0
//
// plugin/foreign_library.hpp: the libraries of other makers that a plugin was built with (ddh_library): what must be set
// before they are loaded, where they may be, and what to do where they are missing.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "ddh/abi.h"

namespace ddhost {

struct ElfFacts;

// The fields of ddh_library; lists are split.
struct ForeignLibrary {
  std::string name, version, folder, cure;
  std::vector<std::string> files, threads, limits;

  [[nodiscard]] bool has_file(const std::string& file_name) const;
  [[nodiscard]] std::string text() const { return version.empty() ? name : name + " " + version; }  // "LibTorch 2.11.0"
};

// From the entry `libraries` of a note; what is ill-formed is left out.
std::vector<ForeignLibrary> libraries_from(const Json& list);
Json to_json(const std::vector<ForeignLibrary>& libraries);
// From a descriptor whose library has been loaded.
std::vector<ForeignLibrary> libraries_of(const ddh_build& build);

// What the libraries of a run may use.
struct LibraryLimits {
  int threads = 0;           // of each rank; 0: as the libraries choose
  std::string instructions;  // a word of ddh_library.limits: "avx2"; empty: all that the processor has
};

// Sets the environment variables of a library that is not loaded yet. Those that the user has set stay. The value of its first
// variable of threads counts for the others too.
void set_variables(const ForeignLibrary& library, const LibraryLimits& limits);

// The number of threads that its variables give it now; 0: none is set to a number.
int threads_of(const ForeignLibrary& library);

// " MKL_ENABLE_INSTRUCTIONS=AVX2": the variables that limit its instructions otherwise than `instructions` says.
std::string other_limits(const ForeignLibrary& library, const std::string& instructions);

// Loads the files of the library that `facts` of a plugin name, from the folder that the user names. The system's loader then
// takes them for every plugin. Error: the user's folder lacks one.
void offer_library(const ForeignLibrary& library, const std::filesystem::path& plugin, const ElfFacts& facts);
// The same from the plugin's own run path, for a library that may have a folder: it is large.
void preload_library(const ForeignLibrary& library, const ElfFacts& facts);

}  // namespace ddhost
