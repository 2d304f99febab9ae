// SPDX-License-Identifier: Apache-2.0
//
// base/direct_file.hpp: a file of a checkpoint. Large ranges are read and written past the page cache (O_DIRECT) if
// the file system allows it: that takes less processor time, and the cache stays free for data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/durable.hpp"

namespace ddhost {

// Functions throw ddh::Error with a sentence that names the file.
class DirectFile {
 public:
  // A block of any disk, and a page of memory of any kernel: direct and cached writes must never share a page.
#if defined(__x86_64__)
  static constexpr uint64_t kBlockBytes = 4096;
#else
  static constexpr uint64_t kBlockBytes = 65536;
#endif
  static uint64_t block_begin(uint64_t at) { return at / kBlockBytes * kBlockBytes; }
  static uint64_t block_end(uint64_t at) { return block_begin(at + kBlockBytes - 1); }

  // Opens an existing file.
  DirectFile(const std::filesystem::path& path, RangeFile::Mode mode);

  // Many blocks go past the cache if `data` is as far from the start of a block as `offset`. The rest goes through the cache.
  void write_at(uint64_t offset, const char* data, uint64_t bytes);
  void read_at(uint64_t offset, void* data, uint64_t bytes) const { cached_.read_at(offset, data, bytes); }
  void sync() const { cached_.sync(); }

  struct Read {
    const char* data;     // the bytes that were asked for, in the buffer
    uint64_t bytes_read;  // up to two blocks more than were asked for
  };
  // Reads into `buffer`, which begins on a block and has room for two blocks more than `bytes`.
  Read read_into(char* buffer, uint64_t offset, uint64_t bytes);

 private:
  uint64_t write_blocks(uint64_t offset, const char* data, uint64_t bytes);
  uint64_t read_blocks(char* buffer, uint64_t begin, uint64_t end, uint64_t needed_end);

  RangeFile cached_;
  std::optional<RangeFile> direct_;  // none: it could not be opened so, or refused a transfer
};

}  // namespace ddhost
