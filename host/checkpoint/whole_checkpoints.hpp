// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/whole_checkpoints.hpp: work on whole checkpoints: two compared, tensor by tensor; the weights of one as
// safetensors files for other programs; and one from that of another program, with the state of its optimizer. It needs
// neither the model nor the strategy.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/tensor_files.hpp"

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

struct ExportedFiles {
  std::vector<std::filesystem::path> files;  // the index last, where there is one
  std::vector<std::string> warnings;         // values that a low-precision dtype can't represent
};

// Parameters in the dtypes that the model stores, and buffers, into `out`/model.safetensors; where they take more than
// `most_bytes`, into model-00001-of-0000N.safetensors and model.safetensors.index.json. A file is at most that large, but for
// a tensor that is larger alone. `layout`: "model", or that of another program (ddh_layout_desc). Throws where a chunk is
// damaged, a value is not finite, a file exists already, or the model has no such layout.
ExportedFiles export_checkpoint(const std::filesystem::path& folder, const Manifest& manifest,
                                const std::filesystem::path& out, uint64_t most_bytes,
                                const std::string& layout = "model");

// A checkpoint of this program from one that another program wrote. What other programs do not say (the model's layout, the
// configuration) comes from a checkpoint of the run that is to go on, such as one after its first step.
struct ImportedCheckpoint {
  std::filesystem::path folder;
  std::vector<std::string> notes;  // sentences about what was done with the values
};

// Writes <run_dir>/checkpoints/step-N for the N updates that the optimizer in `from` has done, and returns its folder.
// `like`: a checkpoint of the run, whose values are all replaced. Throws where `from` lacks a tensor, or has one more, or
// where `like` has numbers that an import can't give (phases, schedules with a state, several optimizers).
ImportedCheckpoint import_checkpoint(const std::filesystem::path& from, const ConvertedFile& converted,
                                     const std::filesystem::path& like, const std::filesystem::path& run_dir);

}  // namespace ddhost
