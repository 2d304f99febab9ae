// SPDX-License-Identifier: Apache-2.0
//
// launch/mapped_path.cpp: searches /proc/self/maps, whose lines are "begin-end perms offset device inode    /path".
#include "launch/mapped_path.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace ddhost {
namespace {

// Reads a line at a time, without allocating. What does not fit is cut.
class Lines {
 public:
  explicit Lines(int fd) : fd_(fd) {}
  bool next(char* line, size_t capacity) {
    size_t length = 0;
    for (;;) {
      if (at_ == filled_) {
        const ssize_t n = ::read(fd_, block_.data(), block_.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at_ = 0;
        filled_ = static_cast<size_t>(n);
      }
      const char c = block_[at_++];
      if (c == '\n') break;
      if (length + 1 < capacity) line[length++] = c;
    }
    line[length] = '\0';
    return true;
  }

 private:
  int fd_;
  std::array<char, 4096> block_{};
  size_t at_ = 0, filled_ = 0;
};

uint64_t hexadecimal(const char*& at) {
  uint64_t value = 0;
  for (;; ++at) {
    if (*at >= '0' && *at <= '9')
      value = value * 16 + static_cast<uint64_t>(*at - '0');
    else if (*at >= 'a' && *at <= 'f')
      value = value * 16 + static_cast<uint64_t>(*at - 'a' + 10);
    else
      return value;
  }
}

// The path in a line of maps whose range holds the address, or nullptr.
const char* path_in(const char* line, uint64_t address) {
  const char* at = line;
  const uint64_t begin = hexadecimal(at);
  if (*at != '-') return nullptr;
  const uint64_t end = hexadecimal(++at);
  return address >= begin && address < end ? std::strchr(at, '/') : nullptr;
}

void append(char* text, size_t capacity, const char* more) {
  const size_t used = std::strlen(text);
  const size_t bytes = std::min(std::strlen(more), capacity - used - 1);
  std::memcpy(text + used, more, bytes);
  text[used + bytes] = '\0';
}

bool starts_with(const char* text, const char* begin) { return std::strncmp(text, begin, std::strlen(begin)) == 0; }

}  // namespace

bool write_cut_file(const siginfo_t& info, char* text, size_t capacity) {
  if (info.si_signo != SIGBUS || info.si_code != BUS_ADRERR) return false;
  const int fd = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  Lines lines(fd);
  std::array<char, 4352> line{};  // PATH_MAX and the numbers before it
  const char* path = nullptr;
  while (path == nullptr && lines.next(line.data(), line.size()))
    path = path_in(line.data(), reinterpret_cast<uint64_t>(info.si_addr));
  ::close(fd);
  // Memory that ranks share is a file too; it fails where the system has none left.
  if (path == nullptr || starts_with(path, "/memfd:") || starts_with(path, "/dev/")) return false;
  text[0] = '\0';
  append(text, capacity, "'");
  append(text, capacity, path);
  append(
      text, capacity,
      "' was cut short or overwritten by another program while the run was reading it; put the whole file back, write "
      "new versions under another name and rename them, and start the run again");
  return true;
}

}  // namespace ddhost
