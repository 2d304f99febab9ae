// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/checkpoint_export.hpp: the weights of a checkpoint as safetensors files for other programs. It needs
// neither the model nor the strategy.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"

namespace ddhost {

// Of linear weights: as the model stores them, or as transformers does for GPT-2 (gpt2_layout.hpp).
enum class ExportLayout { model, transformers };

struct ExportedFiles {
  std::vector<std::filesystem::path> files;  // the index last, where there is one
  std::vector<std::string> warnings;         // values that a low-precision dtype can't represent
};

// Parameters in the dtypes that the model stores, and buffers, into `out`/model.safetensors; where they take more than
// `most_bytes`, into model-00001-of-0000N.safetensors and model.safetensors.index.json. A file is at most that large, but for
// a tensor that is larger alone. Throws where a chunk is damaged, a value is not finite, a file exists already, or
// transformers' GPT-2 has other parameters.
ExportedFiles export_checkpoint(const std::filesystem::path& folder, const Manifest& manifest,
                                const std::filesystem::path& out, uint64_t most_bytes,
                                ExportLayout layout = ExportLayout::model);

}  // namespace ddhost
