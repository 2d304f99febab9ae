// SPDX-License-Identifier: Apache-2.0
//
// engine/state/piece_copy.hpp: a copy of ranges of tensors, on its way to the files of a checkpoint, and those files as
// one rank writes them. Each byte lies as far from the start of a block of memory as it will lie in its file, so that
// whole blocks can go past the page cache.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <future>
#include <optional>
#include <vector>

#include "base/direct_file.hpp"
#include "checkpoint/checkpoint_layout.hpp"
#include "checkpoint/host_parts.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/usable_values.hpp"
#include "engine/services/memory/memory.hpp"

namespace ddhost {

// A chunk that several pieces fill. The rank that wrote its first byte reads it again after all have written.
struct SharedChunk {
  size_t tensor;
  uint64_t chunk;
};

// Exchanged as bytes.
struct UnusableValue {
  int64_t tensor = -1;  // -1: there is none
  uint64_t element = 0;
};

// The files of a checkpoint as one rank writes them, with the checksums of what it wrote, and the values that must not be
// there.
class RankWriter {
 public:
  // of_chunks: all ranks write the files of `folder`, and the one that wrote the first byte of a chunk computes its checksum.
  // of_ranges: those of one host do, so each range gets a checksum of its own.
  enum class Sums { of_chunks, of_ranges };
  RankWriter(const std::filesystem::path& folder, const CheckpointLayout& layout, Sums sums = Sums::of_chunks)
      : layout_(layout), by_range_(sums == Sums::of_ranges), sums_(layout.chunks()) {
    for (const CheckpointLayout::File& file : layout.files())
      files_.emplace_back(folder / file.name, RangeFile::Mode::write);
  }

  void write(size_t file, uint64_t offset, const char* values, uint64_t bytes) {
    files_[file].write_at(offset, values, bytes);
  }
  // Computes the checksums of the whole chunks in a range of bytes of a tensor, and checks its values. A chunk that no call
  // has whole is read again.
  void sum(size_t tensor, uint64_t begin, const char* values, uint64_t bytes) {
    const StoredTensor& t = layout_.tensors()[tensor];
    for (uint64_t at = begin, end = begin + bytes; at < end;) {
      const uint64_t chunk = at / kChunkBytes, chunk_begin = chunk * kChunkBytes;
      const uint64_t chunk_end = chunk_begin + t.chunk_bytes(chunk), stop = std::min(end, chunk_end);
      check(tensor, at, values + (at - begin), stop - at);
      if (by_range_) {
        ranges_.push_back(
            {static_cast<uint32_t>(t.file), 0, t.offset + at, stop - at, sum_of(values + (at - begin), stop - at)});
      } else if (at == chunk_begin && stop == chunk_end) {
        sums_[t.first_chunk + chunk] = sum_of(values + (at - begin), stop - at);
      } else if (at == chunk_begin) {
        shared_.push_back({tensor, chunk});
      }
      at = stop;
    }
  }
  void sync() const {
    for (const DirectFile& file : files_) file.sync();
  }
  // Called after all ranks have written.
  void sum_shared_chunks() {
    std::vector<char> bytes(shared_.empty() ? 0 : kChunkBytes);
    for (const SharedChunk& s : shared_) {
      const StoredTensor& t = layout_.tensors()[s.tensor];
      files_[t.file].read_at(t.offset + s.chunk * kChunkBytes, bytes.data(), t.chunk_bytes(s.chunk));
      sums_[t.first_chunk + s.chunk] = sum_of(bytes.data(), t.chunk_bytes(s.chunk));
    }
  }
  // The first value that this rank wrote and from which no run can go on.
  [[nodiscard]] const UnusableValue& unusable() const { return unusable_; }
  // The checksums that this rank computed; 0 for other chunks.
  [[nodiscard]] const std::vector<uint64_t>& sums() const { return sums_; }
  // What this rank wrote, with Sums::of_ranges.
  [[nodiscard]] const std::vector<PartRange>& ranges() const { return ranges_; }

 private:
  void check(size_t tensor, uint64_t begin, const char* values, uint64_t bytes) {
    if (unusable_.tensor >= 0) return;
    const StoredTensor& t = layout_.tensors()[tensor];
    if (const std::optional<uint64_t> at = first_unusable(t, values, bytes))
      unusable_ = {static_cast<int64_t>(tensor), begin / ddh_dtype_bytes(t.dtype) + *at};
  }

  const CheckpointLayout& layout_;
  const bool by_range_;
  std::vector<PartRange> ranges_;
  std::vector<DirectFile> files_;
  UnusableValue unusable_;
  std::vector<uint64_t> sums_;
  std::vector<SharedChunk> shared_;
};

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
