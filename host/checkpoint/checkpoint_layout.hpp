// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/checkpoint_layout.hpp: the tensors of a checkpoint, and where each of them is stored. It depends only on
// the model and its optimizers, so it is the same for every rank, world size and strategy. Also how other programs store
// the same weights.
//
//   model.safetensors      parameters in fp32 (the masters) and the model's buffers, by their names
//   optimizer.safetensors  slots of the optimizers: "exp_avg/<parameter>"
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ddh/ddh.h"
#include "ddh/sdk/files/file_tensor.hpp"
#include "engine/services/optim/optimizers.hpp"

namespace ddhost {

// How other programs store a model's parameters (ddh_layout_desc): some linear weights are [in, out] there. Everything that
// reads or writes weights decides and transposes here.
struct StoredLayout {
  std::string name;                  // "transformers"
  std::set<std::string> transposed;  // parameters of the model
  std::string refused;               // why the model has no export in it, or ""
};

std::vector<StoredLayout> layouts_of(const ddh_model_desc& model);

inline bool is_transposed_shape(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  return a.size() == 2 && b.size() == 2 && a[0] == b[1] && a[1] == b[0];
}
// A parameter, its shape in the model, and that of its tensor in a file.
struct FoundShape {
  std::string param;
  std::vector<int64_t> wanted, found;
};
// The first layout that one of the shapes shows, for all of the file; without a name: none.
StoredLayout layout_shown(const std::vector<StoredLayout>& layouts, const std::vector<FoundShape>& shapes);
// For the log. `what`: the file.
std::string layout_note(const std::string& what, const StoredLayout& layout);

// Elements [offset, offset + numel) of the [out, in] that a file holds as [in, out], in fp32.
void read_transposed(const ddh::FileTensor& tensor, uint64_t offset, uint64_t numel, float* dst);

// A tensor has a checksum (XXH3) for each chunk of this size, counted from its first byte.
inline constexpr uint64_t kChunkBytes = uint64_t{1} << 20;

enum class TensorKind { param, slot, buffer };

struct StoredTensor {
  TensorKind kind;
  std::string name;
  int32_t dtype;  // in the checkpoint
  std::vector<int64_t> shape;
  uint64_t bytes;
  size_t file;                          // index in CheckpointLayout::files
  uint64_t offset;                      // bytes from the start of the file
  uint64_t first_chunk;                 // in the list of the chunks of all tensors
  int32_t export_dtype;                 // of parameters: as the model stores them in a file of weights
  std::vector<std::string> tied_names;  // of parameters
  bool holds_any_value = false;         // of buffers with DDH_SYNC_NEVER, in which a model may keep an infinity

  [[nodiscard]] uint64_t chunks() const { return (bytes + kChunkBytes - 1) / kChunkBytes; }
  [[nodiscard]] uint64_t chunk_bytes(uint64_t chunk) const {
    return chunk + 1 < chunks() ? kChunkBytes : bytes - chunk * kChunkBytes;
  }
};

class CheckpointLayout {
 public:
  // The arguments are only read in the constructor.
  CheckpointLayout(const ddh_model_desc& model, const Optimizers& optimizers);

  struct File {
    std::string name;
    std::string header;  // with its length in front
    uint64_t bytes;
  };
  [[nodiscard]] const std::array<File, 2>& files() const { return files_; }
  [[nodiscard]] const std::vector<StoredTensor>& tensors() const { return tensors_; }
  [[nodiscard]] const std::vector<StoredLayout>& of_other_programs() const { return of_other_programs_; }
  [[nodiscard]] uint64_t chunks() const { return chunks_; }
  [[nodiscard]] uint64_t bytes() const { return files_[0].bytes + files_[1].bytes; }

  // Indices in tensors(). A slot that the parameter does not use has none: -1.
  [[nodiscard]] size_t param(int32_t param) const { return static_cast<size_t>(param); }
  [[nodiscard]] size_t buffer(uint32_t buffer) const { return first_buffer_ + buffer; }
  [[nodiscard]] int64_t slot(uint32_t slot, int32_t param) const {
    return slot < slots_.size() ? slots_[slot][static_cast<size_t>(param)] : -1;
  }

 private:
  void place(size_t file, size_t begin, size_t end, const std::map<std::string, std::string>& metadata);

  std::vector<StoredLayout> of_other_programs_;
  std::array<File, 2> files_;
  std::vector<StoredTensor> tensors_;
  size_t first_buffer_ = 0;
  std::vector<std::vector<int64_t>> slots_;  // per slot and parameter
  uint64_t chunks_ = 0;
};

}  // namespace ddhost
