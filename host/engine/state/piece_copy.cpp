// SPDX-License-Identifier: Apache-2.0
#include "engine/state/piece_copy.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace ddhost {
namespace {

constexpr uint64_t kWriteBytes = uint64_t{8} << 20;  // of one call

// Writes in calls that end at blocks of the file.
void write_run(RankWriter& writer, size_t file, uint64_t offset, const char* values, uint64_t bytes) {
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t n = std::min(bytes - done, kWriteBytes - (offset + done) % DirectFile::kBlockBytes);
    writer.write(file, offset + done, values + done, n);
    done += n;
  }
}

}  // namespace

char* CopyMemory::at_least(uint64_t bytes) {
  if (bytes_ < bytes) {
    memory_.release(std::exchange(block_, nullptr));
    bytes_ = 0;
    block_ = memory_.allocate(DDH_TAG_COMM, bytes + DirectFile::kBlockBytes, "copy of a checkpoint", DDH_MEM_HOST);
    bytes_ = bytes;
#ifdef MADV_POPULATE_WRITE
    // Now, not while training waits for the first copy. An older kernel does not know it.
    if (madvise(block_, bytes, MADV_POPULATE_WRITE) != 0 && errno == ENOMEM)
      ddh::fail(DDH_RESOURCE_EXHAUSTED, "there is no memory for the copy of a checkpoint, ", bytes,
                " bytes of this rank; lower checkpoint.max_bytes_in_flight, or set checkpoint.async=false");
#endif
  }
  const auto at = reinterpret_cast<uintptr_t>(block_);
  return static_cast<char*>(block_) +
         (DirectFile::kBlockBytes - at % DirectFile::kBlockBytes) % DirectFile::kBlockBytes;
}

uint64_t CopyPlaces::file_offset(size_t tensor, uint64_t begin) const {
  return layout_.tensors()[tensor].offset + begin;
}

uint64_t CopyPlaces::next(size_t tensor, uint64_t begin) const {
  const uint64_t at = file_offset(tensor, begin);
  if (used_ > 0 && layout_.tensors()[tensor].file == file_ && at == file_end_) return used_;
  return used_ + (at - used_) % DirectFile::kBlockBytes;  // the block size divides 2^64
}

uint64_t CopyPlaces::take(size_t tensor, uint64_t begin, uint64_t bytes) {
  const uint64_t place = next(tensor, begin);
  used_ = place + bytes;
  file_ = layout_.tensors()[tensor].file;
  file_end_ = file_offset(tensor, begin) + bytes;
  return place;
}

char* PieceCopy::add(size_t tensor, uint64_t begin, uint64_t bytes) {
  ranges_.push_back({tensor, begin, bytes, places_.take(tensor, begin, bytes)});
  return base_ + ranges_.back().place;
}

void PieceCopy::write_to(RankWriter& writer) {
  for (const Range& range : ranges_) writer.sum(range.tensor, range.begin, base_ + range.place, range.bytes);
  for (size_t i = 0; i < ranges_.size();) {
    const size_t file = layout_.tensors()[ranges_[i].tensor].file;
    const uint64_t place = ranges_[i].place, offset = layout_.tensors()[ranges_[i].tensor].offset + ranges_[i].begin;
    uint64_t bytes = 0;
    do {
      bytes += ranges_[i++].bytes;
    } while (i < ranges_.size() && is_at(ranges_[i], file, offset + bytes));
    write_run(writer, file, offset, base_ + place, bytes);
  }
  ranges_.clear();
  places_.clear();
}

bool PieceCopy::is_at(const Range& range, size_t file, uint64_t offset) const {
  const StoredTensor& t = layout_.tensors()[range.tensor];
  return t.file == file && t.offset + range.begin == offset;
}

char* DoubleBuffer::add(size_t tensor, uint64_t begin, uint64_t bytes) {
  if (!halves_[filled_].has_room(tensor, begin, bytes)) swap();
  return halves_[filled_].add(tensor, begin, bytes);
}

void DoubleBuffer::swap() {
  if (writing_.valid()) writing_.get();
  writing_ = std::async([this, &full = halves_[filled_]] { full.write_to(writer_); });
  filled_ = 1 - filled_;
}

void DoubleBuffer::finish() {
  if (writing_.valid()) writing_.get();
  halves_[filled_].write_to(writer_);
}

}  // namespace ddhost
