// SPDX-License-Identifier: Apache-2.0
//
// engine/state/rank_writer.hpp: the files of a checkpoint as one rank writes them, with the checksums of what it wrote,
// and the values that must not be there.
#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/direct_file.hpp"
#include "checkpoint/checkpoint_layout.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/usable_values.hpp"

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

class RankWriter {
 public:
  RankWriter(const std::filesystem::path& folder, const CheckpointLayout& layout)
      : layout_(layout), sums_(layout.chunks()) {
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
      if (at == chunk_begin && stop == chunk_end) {
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

 private:
  void check(size_t tensor, uint64_t begin, const char* values, uint64_t bytes) {
    if (unusable_.tensor >= 0) return;
    const StoredTensor& t = layout_.tensors()[tensor];
    if (const std::optional<uint64_t> at = first_unusable(t, values, bytes))
      unusable_ = {static_cast<int64_t>(tensor), begin / ddh_dtype_bytes(t.dtype) + *at};
  }

  const CheckpointLayout& layout_;
  std::vector<DirectFile> files_;
  UnusableValue unusable_;
  std::vector<uint64_t> sums_;
  std::vector<SharedChunk> shared_;
};

}  // namespace ddhost
