// SPDX-License-Identifier: Apache-2.0
#include "base/direct_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace ddhost {
namespace {

constexpr uint64_t kLeastBytes = uint64_t{256} << 10;  // smaller transfers gain from the cache, which collects them

// The file system cannot transfer these blocks past the cache.
bool is_refusal(int error) { return error == EINVAL || error == EOPNOTSUPP; }

}  // namespace

DirectFile::DirectFile(const std::filesystem::path& path, RangeFile::Mode mode) : cached_(path, mode) {
  const int access = mode == RangeFile::Mode::read ? O_RDONLY : O_WRONLY;
  const int fd = ::open(path.c_str(), access | O_DIRECT | O_CLOEXEC);
  if (fd >= 0) direct_.emplace(path, fd);
}

void DirectFile::write_at(uint64_t offset, const char* data, uint64_t bytes) {
  uint64_t before = std::min(bytes, block_end(offset) - offset), blocks = block_begin(bytes - before);
  const bool is_aligned = (reinterpret_cast<uintptr_t>(data) + before) % kBlockBytes == 0;
  if (!direct_ || !is_aligned || blocks < kLeastBytes) before = blocks = 0;
  const uint64_t done = before + (blocks > 0 ? write_blocks(offset + before, data + before, blocks) : 0);
  if (before > 0) cached_.write_at(offset, data, before);
  if (done < bytes) cached_.write_at(offset + done, data + done, bytes - done);
}

// Returns the bytes of the blocks that are written: fewer than asked for if the file system refuses.
uint64_t DirectFile::write_blocks(uint64_t offset, const char* data, uint64_t bytes) {
  uint64_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::pwrite(direct_->descriptor(), data + done, bytes - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && is_refusal(errno)) {
      direct_.reset();
      return done;
    }
    if (n == 0) errno = EIO;
    if (n <= 0) direct_->fail_write();
    done += static_cast<uint64_t>(n);
    if (done % kBlockBytes != 0) return block_begin(done);
  }
  return done;
}

DirectFile::Read DirectFile::read_into(char* buffer, uint64_t offset, uint64_t bytes) {
  const uint64_t begin = block_begin(offset), end = offset + bytes;
  if (direct_ && bytes >= kLeastBytes) {
    const uint64_t read = read_blocks(buffer, begin, block_end(end), end);
    if (begin + read >= end) return {buffer + (offset - begin), read};
  }
  cached_.read_at(offset, buffer, bytes);
  return {buffer, bytes};
}

// Returns the bytes that were read, perhaps fewer than needed.
uint64_t DirectFile::read_blocks(char* buffer, uint64_t begin, uint64_t end, uint64_t needed_end) {
  uint64_t done = 0;
  while (begin + done < needed_end && done % kBlockBytes == 0) {
    const ssize_t n =
        ::pread(direct_->descriptor(), buffer + done, end - begin - done, static_cast<off_t>(begin + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && is_refusal(errno)) direct_.reset();
    if (n <= 0) break;  // the read through the cache reports the error
    done += static_cast<uint64_t>(n);
  }
  return done;
}

}  // namespace ddhost
