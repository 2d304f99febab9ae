// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/checkpoint_layout.hpp: the tensors of a checkpoint, and where each of them is stored. It depends only on
// the model and its optimizers, so it is the same for every rank, world size and strategy. Also how other programs store
// the same weights.
//
//   model.safetensors      parameters in fp32 (the masters) and the model's buffers, by their names
//   optimizer.safetensors  slots of the optimizers: "exp_avg/<parameter>", with the shape of the parameter, [ceil(numel / 64)]
//                          or [slot_numel], by the slot's extent
//   strategy.safetensors   only if the strategy has any: its own state, "own/<name>" or "own/<name>/<parameter>", and
//                          values that differ between ranks, "replica.<i>/<tensor>". Parameters and slots of replica 0
//                          are in the plain tensor.
//
// If an optimizer shows other weights than the masters, model.safetensors has those, and optimizer.safetensors the masters:
// "master/<parameter>". So whatever reads weights from a checkpoint gets the ones to evaluate.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
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

enum class TensorKind { param, slot, buffer, strategy };
// "parameter": for sentences.
const char* kind_text(TensorKind kind);

// What a strategy keeps beside shared parameters and slots; the same on every rank. Names of its tensors follow from it.
struct StrategyTensor {
  int32_t kind = 0, slot = 0, param = -1;  // as in ddh_state_entry
  std::string name;                        // of an OWN entry
  int32_t dtype = 0;
  uint64_t numel = 0;
  int32_t replicas = 0;  // with values of their own; 0: it is of shared scope

  [[nodiscard]] std::tuple<int32_t, int32_t, int32_t, std::string> key_of() const { return {kind, slot, param, name}; }
};

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
  uint64_t grid = DDH_GRID;  // ranks hold ranges that begin at multiples of it; 1: a slot of DDH_SLOT_PER_BLOCK

  [[nodiscard]] uint64_t chunks() const { return (bytes + kChunkBytes - 1) / kChunkBytes; }
  [[nodiscard]] uint64_t chunk_bytes(uint64_t chunk) const {
    return chunk + 1 < chunks() ? kChunkBytes : bytes - chunk * kChunkBytes;
  }
};

// Of the names of tensors of a strategy's further replicas: "replica.3/exp_avg/w".
inline constexpr std::string_view kReplicaPrefix = "replica.";
// The tensor of a parameter's masters, where model.safetensors has what an optimizer shows.
inline std::string master_name(const std::string& param) { return std::string(kMasterSlot) + "/" + param; }

class CheckpointLayout {
 public:
  // The arguments are only read in the constructor. `shown`: one per parameter, 1 where model.safetensors has what an
  // optimizer shows; empty: nowhere.
  CheckpointLayout(const ddh_model_desc& model, const Optimizers& optimizers, const std::vector<uint8_t>& shown,
                   std::span<const StrategyTensor> strategy = {});

  struct File {
    std::string name;
    std::string header;  // with its length in front
    uint64_t bytes;
  };
  [[nodiscard]] const std::vector<File>& files() const { return files_; }
  [[nodiscard]] const std::vector<StoredTensor>& tensors() const { return tensors_; }
  [[nodiscard]] const std::vector<StoredLayout>& of_other_programs() const { return of_other_programs_; }
  [[nodiscard]] uint64_t chunks() const { return chunks_; }
  [[nodiscard]] uint64_t bytes() const;

  // Indices in tensors(). A slot that the parameter does not use has none: -1. That of the host holds what is shown.
  [[nodiscard]] size_t param(int32_t param) const { return masters_.at(static_cast<size_t>(param)); }
  [[nodiscard]] size_t buffer(uint32_t buffer) const { return first_buffer_ + buffer; }
  [[nodiscard]] int64_t slot(uint32_t slot, int32_t param) const {
    return slot < slots_.size() ? slots_[slot][static_cast<size_t>(param)] : -1;
  }
  // The tensor of a strategy's entry; -1: none.
  [[nodiscard]] int64_t of_entry(const ddh_state_entry& entry) const;
  // Of a tensor of a replica: the plain one, whose values it begins with in another world. -1: it begins with zeros.
  [[nodiscard]] int64_t plain(size_t tensor) const { return plain_[tensor]; }

 private:
  void add_strategy(const ddh_model_desc& model, const StrategyTensor& given);
  void place(size_t file, size_t begin, size_t end, const std::map<std::string, std::string>& metadata);

  std::vector<StoredLayout> of_other_programs_;
  std::vector<File> files_;
  std::vector<StoredTensor> tensors_;
  size_t first_buffer_ = 0;
  std::vector<size_t> masters_;              // per parameter
  std::vector<std::vector<int64_t>> slots_;  // per slot and parameter
  // Of the strategy: kind, slot, parameter and name of an entry, and its replica.
  std::map<std::tuple<int32_t, int32_t, int32_t, std::string, int32_t>, size_t> strategy_;
  std::vector<int64_t> plain_;  // per tensor
  uint64_t chunks_ = 0;
};

}  // namespace ddhost
