// SPDX-License-Identifier: Apache-2.0
#include "base/durable.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "ddh/sdk/files/input_file.hpp"
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
fs::path hidden_name(const fs::path& path, const char* suffix) {
  return path.parent_path() / ("." + path.filename().string() + suffix);
}

// Errors of a kernel or a file system that has no files without a name.
bool lacks_unnamed_files(int error) { return error == EOPNOTSUPP || error == EISDIR || error == ENOENT; }

// `hidden` is set if the file needs a name.
int open_in(const fs::path& folder, const fs::path& what, bool is_hidden, fs::path& hidden) {
  constexpr int kMostTries = 100;
  int fd = is_hidden ? -1 : ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
  if (is_hidden || (fd < 0 && lacks_unnamed_files(errno))) {
    for (int n = 0; fd < 0 && n < kMostTries; ++n) {
      hidden = folder / ddh::str(".ddhost-", ::getpid(), "-", n);
      fd = ::open(hidden.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
      if (fd < 0 && errno != EEXIST) break;
    }
  }
  if (fd < 0)
    ddh::fail(DDH_PERMISSION_DENIED, "'", what.string(), "' can't be made: nothing can be written in '",
              folder.string(), "' (", std::strerror(errno), "); choose another place");
  return fd;
}

// Moves a file of a file system without unnamed files. Not all of them know RENAME_NOREPLACE.
int move_to(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return -1;
  if (::link(from.c_str(), to.c_str()) != 0) return -1;
  ::unlink(from.c_str());
  return 0;
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

void RangeFile::resize(uint64_t bytes) const {
  if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) fail_write();
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
  const fs::path part = hidden_name(file, ".part");
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

void drop_part_of(const fs::path& file) { drop(hidden_name(file, ".part")); }

void replace_link(const fs::path& link, const fs::path& target) {
  const fs::path part = hidden_name(link, ".part");
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
  const fs::path nameless = hidden_name(folder, ".removed");
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

NewFile::NewFile(const fs::path& folder, const fs::path& what, bool is_hidden)
    : data_(what, open_in(folder, what, is_hidden, hidden_)) {}

// It has no name here, so that this process neither publishes nor removes it.
NewFile::NewFile(const Elsewhere& file) : data_(file.hidden, RangeFile::Mode::write) {}

NewFile::~NewFile() {
  if (!hidden_.empty()) ::unlink(hidden_.c_str());
}

bool NewFile::publish(const fs::path& path) const {
  const std::string unnamed = ddh::str("/proc/self/fd/", data_.descriptor());
  const int rc = hidden_.empty() ? ::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW)
                                 : move_to(hidden_, path);
  if (rc != 0 && errno == EEXIST) return false;
  if (rc != 0) ddh::fail(DDH_PERMISSION_DENIED, "'", path.string(), "' can't be created: ", std::strerror(errno));
  sync_folder(path.parent_path());
  return true;
}

fs::path NewFile::publish_beside(const fs::path& path) const {
  constexpr int kMostNames = 1000;
  fs::path candidate = path;
  for (int n = 2; n <= kMostNames; ++n) {
    if (publish(candidate)) return candidate;
    candidate = path.parent_path() / ddh::str(path.stem().string(), "-", n, path.extension().string());
  }
  ddh::fail(DDH_ALREADY_EXISTS, "'", path.string(), "' and ", kMostNames - 2, " names like it are taken");
}

void NewFile::copy(const NewFile& other) const {
  constexpr uint64_t kPiece = uint64_t{1} << 20;
  const uint64_t bytes = other.data_.bytes();
  data_.reserve(bytes);
  std::vector<char> piece(std::min(kPiece, bytes));
  for (uint64_t done = 0; done < bytes; done += piece.size()) {
    const uint64_t n = std::min<uint64_t>(piece.size(), bytes - done);
    other.data_.read_at(done, piece.data(), n);
    data_.write_at(done, piece.data(), n);
  }
  data_.sync();
}

}  // namespace ddhost
