// SPDX-License-Identifier: Apache-2.0
#include "ddh/sdk/files/input_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ddh {
inline namespace v1 DDH_HIDDEN {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "folder";
  if (S_ISFIFO(mode)) return "pipe (FIFO)";
  if (S_ISSOCK(mode)) return "socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "device";
  return "special file";
}

[[noreturn]] void fail_kind(const std::string& path, const InputWords& words, mode_t mode) {
  fail(DDH_INVALID_ARGUMENT, words.what, " '", path, "' is not a regular file but a ", kind_of(mode), "; ", words.cure);
}

// O_NONBLOCK: the open of a FIFO without a writer would wait for one. For regular files it has no effect.
int open_input(const std::string& path, const InputWords& words) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd >= 0) return fd;
  const int error = errno;
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) fail_kind(path, words, info.st_mode);  // a socket
  if (error == ENOENT) fail(DDH_NOT_FOUND, words.what, " '", path, "' does not exist; ", words.cure);
  const bool lacks_room = error == EMFILE || error == ENFILE || error == ENOMEM;
  const ddh_rc code = error == EACCES ? DDH_PERMISSION_DENIED : lacks_room ? DDH_RESOURCE_EXHAUSTED : DDH_NOT_FOUND;
  fail(code, words.what, " '", path, "' can't be opened: ", std::strerror(error), "; ",
       lacks_room        ? "close other programs, or raise the limit (ulimit -n)"
       : error == EACCES ? "give this user the right to read it"
                         : words.cure);
}

}  // namespace

InputFile::InputFile(std::string path, InputWords words)
    : path_(std::move(path)), words_(words), fd_(open_input(path_, words_)) {
  struct stat info {};
  const bool known = ::fstat(fd_, &info) == 0;
  if (known && S_ISREG(info.st_mode)) {
    bytes_ = static_cast<uint64_t>(info.st_size);
    return;
  }
  ::close(fd_);
  fail_kind(path_, words_, info.st_mode);
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

int InputFile::release() { return std::exchange(fd_, -1); }

std::string InputFile::read(uint64_t most) const {
  constexpr uint64_t kStep = uint64_t{1} << 20;
  std::string text;
  // Not up to the size: files of /proc have the size 0.
  for (ssize_t n = 1; n != 0;) {
    const uint64_t at = text.size();
    text.resize(at + std::min(std::max(bytes_ - std::min(at, bytes_) + 1, uint64_t{4096}), std::max(kStep, at)));
    do {
      n = ::read(fd_, text.data() + at, text.size() - at);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
      fail(DDH_DATA_LOSS, words_.what, " '", path_, "' can't be read: ", std::strerror(errno), "; ", words_.cure);
    text.resize(at + static_cast<uint64_t>(n));
    if (text.size() > most)
      fail(DDH_INVALID_ARGUMENT, words_.what, " '", path_, "' has more than ", most, " bytes, the limit; ",
           words_.cure);
  }
  if (text.size() < bytes_)
    fail(DDH_DATA_LOSS, words_.what, " '", path_, "' was cut from ", bytes_, " to ", text.size(),
         " bytes while it was read; try again when no program writes to it");
  return text;
}

MappedInput::MappedInput(const std::string& path, InputWords words) {
  const InputFile file(path, words);
  bytes_ = file.bytes();
  if (bytes_ == 0) return;
  base_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file.fd_, 0);
  if (base_ != MAP_FAILED) return;
  base_ = nullptr;
  fail(DDH_RESOURCE_EXHAUSTED, words.what, " '", path, "' can't be mapped: ", std::strerror(errno), "; ", words.cure);
}

MappedInput::~MappedInput() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
