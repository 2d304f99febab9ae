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

}  // namespace ddhost
