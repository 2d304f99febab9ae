// SPDX-License-Identifier: Apache-2.0
#include "base/durable.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "ddh/sdk/input_file.hpp"
#include "ddh/sdk/plugin.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

int flags_of(RangeFile::Mode mode) { return mode == RangeFile::Mode::write ? O_RDWR : O_RDWR | O_CREAT | O_TRUNC; }

[[noreturn]] void fail_path(const char* what, const fs::path& path, const char* cure) {
  ddh::fail(errno == ENOENT ? DDH_NOT_FOUND : DDH_PERMISSION_DENIED, what, " '", path.string(),
            "': ", std::strerror(errno), "; ", cure);
}

// Removes the file of an attempt that failed, and keeps its errno.
void drop(const fs::path& part) {
  const int error = errno;
  ::unlink(part.c_str());
  errno = error;
}

// A temporary name for what is being written or removed. The leading "." hides it from lists.
fs::path hidden(const fs::path& path, const char* suffix) {
  return path.parent_path() / ("." + path.filename().string() + suffix);
}

}  // namespace

RangeFile::RangeFile(fs::path path, Mode mode)
    : path_(std::move(path)),
      fd_(mode == Mode::read ? ddh::InputFile(path_.string()).release()
                             : ::open(path_.c_str(), flags_of(mode) | O_CLOEXEC, 0644)) {
  if (fd_ < 0) fail_path("cannot open for writing", path_, "give another place");
}

RangeFile::RangeFile(fs::path path, int fd) : path_(std::move(path)), fd_(fd) {}

RangeFile::RangeFile(RangeFile&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

RangeFile::~RangeFile() {
  if (fd_ >= 0) ::close(fd_);
}

void RangeFile::write_at(uint64_t offset, const void* data, uint64_t bytes) const {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd_, from, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_write();
    from += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<uint64_t>(n);
  }
}

void RangeFile::read_at(uint64_t offset, void* data, uint64_t bytes) const {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd_, to, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) ddh::fail(DDH_DATA_LOSS, "cannot read '", path_.string(), "': ", std::strerror(errno));
    if (n == 0) ddh::fail(DDH_DATA_LOSS, "'", path_.string(), "' is cut short: it ends at byte ", offset);
    to += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<uint64_t>(n);
  }
}

void RangeFile::reserve(uint64_t bytes) const {
  int rc = 0;
  do {
    rc = ::posix_fallocate(fd_, 0, static_cast<off_t>(bytes));
  } while (rc == EINTR);
  if (rc == 0 || bytes == 0) return;
  errno = rc;
  fail_write();
}

void RangeFile::clear() const {
  if (::ftruncate(fd_, 0) != 0) fail_write();
}

uint64_t RangeFile::bytes() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) fail_path("cannot read", path_, "give an existing file");
  return static_cast<uint64_t>(info.st_size);
}

void RangeFile::sync() const {
  int rc = 0;
  do {
    rc = ::fsync(fd_);
  } while (rc != 0 && errno == EINTR);
  if (rc != 0) fail_write();
}

void RangeFile::fail_write() const {
  ddh::fail(DDH_RESOURCE_EXHAUSTED, "cannot write '", path_.string(), "': ", std::strerror(errno),
            "; free some space or give another file");
}

void sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool done = fd >= 0 && ::fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  errno = error;
  if (!done) fail_path("cannot sync the folder", folder, "give another place");
}

void write_durably(const fs::path& file, std::string_view text) {
  const RangeFile out(file, RangeFile::Mode::create);
  out.write_at(0, text.data(), text.size());
  out.sync();
}

void replace_durably(const fs::path& file, std::string_view text) {
  const fs::path part = hidden(file, ".part");
  try {
    write_durably(part, text);
  } catch (...) {
    drop(part);
    throw;
  }
  if (::rename(part.c_str(), file.c_str()) != 0) {
    drop(part);
    fail_path("cannot replace", file, "check the permissions of its folder");
  }
  sync_folder(file.parent_path());
}

void replace_link(const fs::path& link, const fs::path& target) {
  const fs::path part = hidden(link, ".part");
  std::error_code ec;
  fs::remove(part, ec);  // of a crash
  if (::symlink(target.c_str(), part.c_str()) != 0 || ::rename(part.c_str(), link.c_str()) != 0) {
    drop(part);
    fail_path("cannot make the link", link, "check the rights of its folder");
  }
  sync_folder(link.parent_path());
}

void publish_folder(const fs::path& from, const fs::path& to) {
  std::error_code ec;
  const bool replaces = fs::exists(to, ec);
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), replaces ? RENAME_EXCHANGE : 0) != 0)
    fail_path("cannot rename a folder to", to, "check the permissions of its folder");
  sync_folder(to.parent_path());
  if (replaces) fs::remove_all(from);
}

void remove_folder(const fs::path& folder) {
  const fs::path nameless = hidden(folder, ".removed");
  std::error_code ec;
  fs::remove_all(nameless, ec);
  if (::rename(folder.c_str(), nameless.c_str()) != 0)
    fail_path("cannot remove", folder, "check the permissions of its folder");
  fs::remove_all(nameless, ec);
  if (ec) ddh::fail(DDH_PERMISSION_DENIED, "cannot remove '", nameless.string(), "': ", ec.message());
}

std::string read_whole(const fs::path& file) {
  const RangeFile in(file, RangeFile::Mode::read);
  std::string text(in.bytes(), '\0');
  in.read_at(0, text.data(), text.size());
  return text;
}

}  // namespace ddhost
