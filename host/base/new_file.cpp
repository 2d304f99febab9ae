// SPDX-License-Identifier: Apache-2.0
#include "base/new_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "ddh/sdk/plugin.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

// Errors of a kernel or a file system that has no files without a name.
bool lacks_unnamed_files(int error) { return error == EOPNOTSUPP || error == EISDIR || error == ENOENT; }

// `hidden` is set if the file needs a name.
int open_in(const fs::path& folder, const fs::path& what, fs::path& hidden) {
  constexpr int kMostTries = 100;
  int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
  if (fd < 0 && lacks_unnamed_files(errno)) {
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

NewFile::NewFile(const fs::path& folder, const fs::path& what) : data_(what, open_in(folder, what, hidden_)) {}

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
