// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/named_checkpoint.hpp: the checkpoint that a user's path stands for, wherever one is taken:
//
//   runs/a/checkpoints/step-100   that checkpoint
//   runs/a/checkpoints/latest     the one that this file names
//   runs/a, runs/a/checkpoints    the newest whole one
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ddhost {

struct NamedCheckpoint {
  std::filesystem::path folder;    // the path itself where it is none of these
  std::vector<std::string> notes;  // sentences about what was chosen, and why a newer one was not
};
NamedCheckpoint named_checkpoint(const std::filesystem::path& path);

// Of a safetensors file, or of an index of such files.
bool is_safetensors_name(const std::filesystem::path& path);

// The same of weights: a folder that holds safetensors files, such as a run's final weights, stands for them.
NamedCheckpoint named_weights(const std::filesystem::path& path);

}  // namespace ddhost
