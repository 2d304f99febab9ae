// SPDX-License-Identifier: Apache-2.0
//
// plan/convert.hpp: reads weights of other programs once, before ranks start. A child process loads the plugin of kind
// format and writes what it reads into one safetensors file. So a crash, an endless call and memory without end in the
// plugin end the child alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tensor_files.hpp"
#include "plugin/registry.hpp"

namespace ddhost {

struct ConvertLimits {
  uint64_t memory_bytes;           // of the child, beyond what it begins with
  std::string memory_key;          // the option that sets it, for sentences
  std::chrono::milliseconds call;  // of a plugin's call; 0: none
  std::string call_key;
};
// "auto" or a size; auto: a quarter of the machine's memory. `key` names the option in the error.
uint64_t convert_memory(const std::string& text, const std::string& key);

struct ConvertRequest {
  std::string format;            // "auto": that which recognizes the file; a name, a path or path:id
  std::filesystem::path folder;  // the disk of the converted file; "": the folder for temporary files
  bool weights_only;             // without the state of an optimizer
  ConvertLimits limits;
};

// nullopt: the path is a safetensors file or a checkpoint of this program by its name, or no format recognizes it. Error: it
// can't be read; the sentence names the path, the plugin if it has done wrong, and the cure.
std::optional<ConvertedFile> convert_foreign(const std::filesystem::path& path, const ConvertRequest& request,
                                             const Registry& registry, std::vector<std::string>& notes);

}  // namespace ddhost
