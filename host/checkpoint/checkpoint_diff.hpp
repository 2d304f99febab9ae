// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/checkpoint_diff.hpp: two checkpoints compared, tensor by tensor.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"

namespace ddhost {

struct TensorDiff {
  std::string name;
  std::string unlike;     // why elements can't be compared: "only the first has it", or two dtypes and shapes; else ""
  uint64_t elements = 0;  // that differ in a bit
  uint64_t numel = 0;
  std::optional<double> largest;  // |a - b|, where the tensor is of floating point and all its differences are numbers
};

struct CheckpointDiff {
  std::vector<TensorDiff> tensors;  // that differ, in the order of the first checkpoint
  size_t names = 0;                 // of tensors, in either of the two
};

// Throws if a chunk is damaged.
CheckpointDiff diff_tensors(const std::filesystem::path& first_folder, const Manifest& first,
                            const std::filesystem::path& second_folder, const Manifest& second);

}  // namespace ddhost
