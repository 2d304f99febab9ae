// SPDX-License-Identifier: Apache-2.0
//
// engine/state/state_pieces.hpp: what a rank holds of the tensors of a checkpoint, and how it is read and written in
// its place: in memory, on a device, or through state_read and state_write.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "checkpoint/checkpoint_layout.hpp"
#include "engine/state/state_entries.hpp"

namespace ddhost {

// A range of a tensor, in one place of this rank.
struct StatePiece {
  size_t tensor;           // of CheckpointLayout
  uint64_t offset, numel;  // elements of the tensor
  int32_t dtype;           // in which the rank keeps it
  void* data;              // nullptr: state_read, state_write
  uint32_t entry;          // of the strategy's list; unused for a buffer of the model
  int32_t replica_index, replica_count;

  [[nodiscard]] bool is_first_replica() const { return replica_index == 0; }
};

// Calls body(begin, numel) for parts of a piece, in elements from its first. They are cut at the grid, and small enough to
// be copied.
template <class Body>
void for_each_part(const StatePiece& piece, Body&& body) {
  constexpr uint64_t kPartNumel = uint64_t{4096} * DDH_GRID;
  for (uint64_t begin = 0; begin < piece.numel; begin += kPartNumel)
    body(begin, std::min(kPartNumel, piece.numel - begin));
}

// The bytes of the tensor that a piece stands for, in the dtype of the file.
inline uint64_t stored_begin(const StatePiece& piece, const CheckpointLayout& layout) {
  return piece.offset * ddh_dtype_bytes(layout.tensors()[piece.tensor].dtype);
}
inline uint64_t stored_bytes(const StatePiece& piece, const CheckpointLayout& layout) {
  return piece.numel * ddh_dtype_bytes(layout.tensors()[piece.tensor].dtype);
}

// A hash of elements [begin, begin + numel) of a tensor, `width` bytes each, and of their places; `begin` is a multiple of
// `grid`. The hashes of the parts of a tensor add up to that of the whole.
uint64_t place_hash(const char* values, uint64_t begin, uint64_t numel, uint64_t width, uint64_t grid = DDH_GRID);

// Every piece of this rank, in the order of the tensors. Throws if the strategy keeps a slot in another dtype than the
// optimizer's. [main]
std::vector<StatePiece> state_pieces(const StateSource& source, const CheckpointLayout& layout);

// Throws, on every rank, unless the first replicas of all ranks hold each element of each tensor of a strategy once.
// [collective]
void check_pieces_once(const std::vector<StatePiece>& pieces, const StateSource& source, const CheckpointLayout& layout,
                       const Comm& comm);

// Reads and writes pieces, in the dtype of their tensor.
class PieceAccess {
 public:
  PieceAccess(const StateSource& source, const CheckpointLayout& layout, Staging& staging)
      : source_(source), layout_(layout), staging_(staging) {}

  // Elements [begin, begin + numel) of a piece, counted from its first. Valid until the next call.
  const char* read(const StatePiece& piece, uint64_t begin, uint64_t numel);
  // The same in the dtype of the piece.
  const char* read_kept(const StatePiece& piece, uint64_t begin, uint64_t numel);
  // Writes elements, which may lie at any address. They are rounded if the rank keeps them in a lower precision. Returns
  // them as they were written, in the dtype of the piece; valid until the next call.
  const char* write(const StatePiece& piece, uint64_t begin, uint64_t numel, const char* from);

 private:
  const StateSource source_;
  const CheckpointLayout& layout_;
  Staging& staging_;
  std::vector<char> values_, converted_;  // they grow to the largest range
};

}  // namespace ddhost
