// SPDX-License-Identifier: Apache-2.0
//
// Files that are read and written past the page cache: every byte at its place, whatever a call does.
#include "base/direct_file.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <random>
#include <vector>

#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/throws.hpp"

using ddhost::DirectFile;
using ddhost::RangeFile;

namespace {

enum class Fault { none, refused, half, torn, interrupted, disk };
std::atomic<Fault> fault = Fault::none;  // of calls with O_DIRECT
std::atomic<int> direct_calls = 0, turn = 0;

bool is_direct(int fd) { return (fcntl(fd, F_GETFL) & O_DIRECT) != 0; }

// Does a transfer as the fault wants it; `real(bytes)` is libc's.
template <class Real>
ssize_t transfer(int fd, size_t bytes, Real&& real) {
  if (!is_direct(fd)) return real(bytes);
  ++direct_calls;
  const bool strikes = ++turn % 2 == 1;
  const auto fails = [](int error) {
    errno = error;
    return ssize_t{-1};
  };
  if (fault == Fault::refused) return fails(turn % 3 == 0 ? EINVAL : EOPNOTSUPP);
  if (fault == Fault::disk) return fails(EIO);
  if (fault == Fault::interrupted && strikes) return fails(EINTR);
  if (fault == Fault::half && strikes && bytes > 8192) return real(bytes / 8192 * 4096);
  const ssize_t n = real(bytes);
  return fault == Fault::torn && strikes && n > 100 ? n - 100 : n;
}

}  // namespace

// In place of libc's, for the code under test.
extern "C" ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  using Call = ssize_t (*)(int, const void*, size_t, off_t);
  static const auto libc = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "pwrite"));
  return transfer(fd, bytes, [&](size_t n) { return libc(fd, data, n, offset); });
}
extern "C" ssize_t pread(int fd, void* data, size_t bytes, off_t offset) {
  using Call = ssize_t (*)(int, void*, size_t, off_t);
  static const auto libc = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "pread"));
  return transfer(fd, bytes, [&](size_t n) { return libc(fd, data, n, offset); });
}

namespace {

constexpr uint64_t kBlock = DirectFile::kBlockBytes, kFileBytes = 5'000'003;

struct Buffer {
  explicit Buffer(uint64_t bytes) : memory(bytes + 2 * kBlock) {
    const auto at = reinterpret_cast<uintptr_t>(memory.data());
    begin = memory.data() + (kBlock - at % kBlock) % kBlock;
  }
  std::vector<char> memory;
  char* begin;
};

// Whether the file system of a file knows O_DIRECT.
bool has_direct(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECT);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

std::vector<char> random_bytes(uint64_t n) {
  std::mt19937_64 draw(7);
  std::vector<char> out(n);
  for (char& c : out) c = static_cast<char>(draw());
  return out;
}

}  // namespace

TEST_CASE("ranges at any offset, written by two, are in the file and read back") {
  fault = GENERATE(Fault::none, Fault::refused, Fault::half, Fault::torn, Fault::interrupted);
  turn = direct_calls = 0;
  const ddhost::test::TempFolder folder;
  const std::string path = folder.file("data");
  const std::vector<char> values = random_bytes(kFileBytes);
  RangeFile(path, RangeFile::Mode::create).reserve(kFileBytes);
  DirectFile one(path, RangeFile::Mode::write), two(path, RangeFile::Mode::write);
  std::mt19937_64 draw(fault == Fault::none ? 1 : 2);
  bool is_first = false;
  for (uint64_t at = 0; at < kFileBytes;) {
    const uint64_t n = std::min<uint64_t>(kFileBytes - at, 1 + draw() % 700'000);
    const uint64_t shift = draw() % 4 == 0 ? 1 : at % kBlock;  // sometimes memory that does not fit the blocks
    Buffer copy(n + kBlock);
    std::memcpy(copy.begin + shift, values.data() + at, n);
    is_first = !is_first;
    (is_first ? one : two).write_at(at, copy.begin + shift, n);
    at += n;
  }
  one.sync();
  CHECK((direct_calls > 0 || !has_direct(path)));
  CHECK((ddhost::test::read_text(path) == std::string(values.begin(), values.end())));

  DirectFile reader(path, RangeFile::Mode::read);
  for (int i = 0; i < 50; ++i) {
    const uint64_t at = draw() % kFileBytes, n = std::min(kFileBytes - at, draw() % 1'000'000);
    Buffer to(n + 2 * kBlock);
    const DirectFile::Read read = reader.read_into(to.begin, at, n);
    CHECK(std::equal(read.data, read.data + n, values.begin() + static_cast<std::ptrdiff_t>(at)));
    CHECK(read.bytes_read >= n);
    CHECK(read.bytes_read <= n + 2 * kBlock);
  }
  fault = Fault::none;
}

TEST_CASE("a disk that fails, and a file that is too short, are errors that name the file") {
  const ddhost::test::TempFolder folder;
  const std::string path = folder.file("data");
  RangeFile(path, RangeFile::Mode::create).reserve(kBlock * 100);
  DirectFile file(path, RangeFile::Mode::write);
  const Buffer buffer(kBlock * 200);
  if (has_direct(path)) {
    fault = Fault::disk;
    CHECK_THAT(ddhost::test::sentence_of([&] { file.write_at(0, buffer.begin, kBlock * 80); }), Catch::Contains(path));
  }
  fault = Fault::none;
  CHECK_THAT(ddhost::test::sentence_of([&] { file.read_into(buffer.begin, 0, kBlock * 150); }),
             Catch::Contains(path) && Catch::Contains("cut short"));
}
