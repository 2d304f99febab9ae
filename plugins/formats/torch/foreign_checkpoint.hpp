// SPDX-License-Identifier: Apache-2.0
//
// formats/torch/foreign_checkpoint.hpp: the tensors of a checkpoint that another program wrote:
//
//   a file of torch.save   a state dict, or a dict that holds one (nanoGPT's ckpt.pt)
//   a folder of transformers with pytorch_model.bin, or with pytorch_model.bin.index.json and the files that it names
//   a folder of torch.distributed.checkpoint (DCP)
//   a folder of DeepSpeed, of ZeRO 1, 2 or 3, or a universal checkpoint
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddh/sdk/files/file_tensor.hpp"

namespace torch_format {

struct ForeignCheckpoint {
  std::string kind;  // "a DCP folder"
  std::map<std::string, ddh::FileTensor> weights;
  // Optimizer slots whose meaning is the same here: "exp_avg/<parameter>". Empty where there are none.
  std::map<std::string, ddh::FileTensor> slots;
  std::optional<int64_t> step;  // updates of the optimizer
  std::string other_step;       // a parameter that has had another number of updates, or ""
  // What the tensors point into.
  std::vector<std::shared_ptr<const void>> files;
  std::deque<std::vector<char>> values;

  // Maps a file into memory, as long as this object lives.
  std::string_view map(const std::string& path);
};

// What `path` is, or nullptr where it is none of these.
const char* foreign_kind(const std::filesystem::path& path);

// Error: damaged, or it holds what is not read: one sentence.
ForeignCheckpoint read_foreign(const std::filesystem::path& path);

// One for each kind.
void read_torch_file(const std::filesystem::path& file, ForeignCheckpoint& out);
inline constexpr const char* kTransformersFile = "pytorch_model.bin";
inline constexpr const char* kTransformersIndex = "pytorch_model.bin.index.json";
void read_transformers_folder(const std::filesystem::path& folder, ForeignCheckpoint& out);
void read_dcp_folder(const std::filesystem::path& folder, ForeignCheckpoint& out);
void read_deepspeed_folder(const std::filesystem::path& folder, ForeignCheckpoint& out);
void read_universal_folder(const std::filesystem::path& folder, ForeignCheckpoint& out);

}  // namespace torch_format
