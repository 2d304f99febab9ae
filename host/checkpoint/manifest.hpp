// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/manifest.hpp: manifest.json of a checkpoint: what is in it, and what it came from. docs/checkpoint-format.md
// specifies it.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint_layout.hpp"
#include "checkpoint/train_progress.hpp"

namespace ddhost {

inline constexpr int64_t kCheckpointVersion = 1;

// A plugin of the run, for readers. The state version of a strategy is compared.
struct UsedPlugin {
  std::string kind, id, version;
  uint32_t state_version = 0;
};

struct Manifest {
  struct Tensor {
    StoredTensor stored;
    std::vector<uint64_t> sums;  // XXH3-64 of each chunk
  };
  struct File {
    std::string name;
    uint64_t bytes = 0;
    uint64_t header_bytes = 0;  // with its length in front
    uint64_t header_sum = 0;
  };

  TrainProgress progress;
  std::string config;  // the effective configuration, as JSON
  uint64_t seed = 0;
  int32_t world_size = 1;
  std::string program_version;
  // What else the bits depend on: "instruction_set", "threads_per_rank", "sample_order".
  std::vector<std::pair<std::string, std::string>> host;
  std::vector<UsedPlugin> plugins;
  std::vector<StoredLayout> layouts;     // of other programs, for an export; checkpoints of ddhost 0.1.0 may lack them
  std::vector<std::string> param_names;  // of OptimizerProgress::param_steps
  std::vector<File> files;
  std::vector<Tensor> tensors;

  [[nodiscard]] const Tensor* find(const std::string& name) const;
};

std::string manifest_text(const Manifest& manifest);
// Throws ddh::Error, naming `path`, if the text is damaged or of a newer version.
Manifest parse_manifest(const std::string& text, const std::string& path);

// XXH3-64 of bytes, and its 16 hexadecimal digits.
uint64_t sum_of(const void* data, uint64_t bytes);
std::string hex(uint64_t sum);

}  // namespace ddhost
