// SPDX-License-Identifier: Apache-2.0
//
// engine/state/piece_copy.hpp: a copy of ranges of tensors, on its way to the files of a checkpoint. Each byte lies as far
// from the start of a block of memory as it will lie in its file, so that whole blocks can go past the page cache.
#pragma once

#include <array>
#include <future>
#include <vector>

#include "checkpoint/checkpoint_layout.hpp"
#include "engine/services/memory/memory.hpp"
#include "engine/state/rank_writer.hpp"

namespace ddhost {

// Where ranges are placed, one after the other. Ranges that touch in the file touch in the copy.
class CopyPlaces {
 public:
  explicit CopyPlaces(const CheckpointLayout& layout) : layout_(layout) {}
  // The place of bytes from `begin` of a tensor, if they came next.
  [[nodiscard]] uint64_t next(size_t tensor, uint64_t begin) const;
  // The same, and keeps it.
  uint64_t take(size_t tensor, uint64_t begin, uint64_t bytes);
  [[nodiscard]] uint64_t used() const { return used_; }
  void clear() { used_ = 0; }

 private:
  [[nodiscard]] uint64_t file_offset(size_t tensor, uint64_t begin) const;
  const CheckpointLayout& layout_;
  uint64_t used_ = 0;
  size_t file_ = 0;
  uint64_t file_end_ = 0;  // of the last range
};

// The memory of copies. It is kept from one checkpoint to the next, because fresh pages cost more time than the copy.
class CopyMemory {
 public:
  explicit CopyMemory(Memory& memory) : memory_(memory) {}
  CopyMemory(const CopyMemory&) = delete;
  CopyMemory& operator=(const CopyMemory&) = delete;
  ~CopyMemory() { memory_.release(block_); }
  // Memory that begins on a block of DirectFile. Its content is undefined. A larger size than before gives other memory.
  char* at_least(uint64_t bytes);

 private:
  Memory& memory_;
  void* block_ = nullptr;
  uint64_t bytes_ = 0;
};

class PieceCopy {
 public:
  // `memory` begins on a block of DirectFile. It and `layout` outlive the object.
  PieceCopy(const CheckpointLayout& layout, char* memory, uint64_t bytes)
      : layout_(layout), base_(memory), bytes_(bytes), places_(layout) {}

  [[nodiscard]] bool has_room(size_t tensor, uint64_t begin, uint64_t bytes) const {
    return places_.next(tensor, begin) + bytes <= bytes_;
  }
  // The place for bytes of a tensor, which must have room. They must be there before write_to().
  char* add(size_t tensor, uint64_t begin, uint64_t bytes);
  // Writes all ranges and their checksums, and forgets them.
  void write_to(RankWriter& writer);

 private:
  struct Range {
    size_t tensor;
    uint64_t begin, bytes;  // of the tensor
    uint64_t place;
  };
  [[nodiscard]] bool is_at(const Range& range, size_t file, uint64_t offset) const;

  const CheckpointLayout& layout_;
  char* const base_;
  const uint64_t bytes_;
  CopyPlaces places_;
  std::vector<Range> ranges_;
};

// Writes ranges in their order. One half is filled while another thread writes the other half.
class DoubleBuffer {
 public:
  static constexpr uint64_t kBytes = 16 * kChunkBytes;  // of memory, for both

  DoubleBuffer(const CheckpointLayout& layout, char* memory, RankWriter& writer)
      : halves_{PieceCopy(layout, memory, kBytes / 2), PieceCopy(layout, memory + kBytes / 2, kBytes / 2)},
        writer_(writer) {}
  // The place for at most kChunkBytes of a tensor, valid until the next call.
  char* add(size_t tensor, uint64_t begin, uint64_t bytes);
  // Writes what is left.
  void finish();

 private:
  void swap();
  std::array<PieceCopy, 2> halves_;
  size_t filled_ = 0;
  RankWriter& writer_;
  std::future<void> writing_;  // of the other half; its destructor waits. Without another thread, get() writes
};

}  // namespace ddhost
