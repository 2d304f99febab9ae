// SPDX-License-Identifier: Apache-2.0
#include "plan/run_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "ddh/sdk/plugin.hpp"
#include "engine/record/step_count.hpp"

namespace ddhost {
namespace {

// A run that has done no step may have removed the file after it was opened here.
bool has_its_name(int fd, const std::filesystem::path& file) {
  struct stat opened {
  }, named{};
  return ::fstat(fd, &opened) == 0 && ::stat(file.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

// Who looks at a run takes the lock for a moment.
bool locked(int fd) {
  constexpr int kTries = 5;
  constexpr std::chrono::milliseconds kPause{20};
  for (int i = 0; i < kTries; ++i) {
    if (i > 0) std::this_thread::sleep_for(kPause);
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
  }
  return false;
}

}  // namespace

RunLock::~RunLock() {
  if (fd_ >= 0) ::close(fd_);
}

RunLock::Result RunLock::take(const std::filesystem::path& folder, File file) {
  const std::filesystem::path path = folder / kRunLock;
  const int exclusive = file == File::must_be_new ? O_EXCL : 0;
  for (;;) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | exclusive, 0644);
    if (fd < 0 && errno == EEXIST) return Result::exists;
    if (fd < 0)
      ddh::fail(DDH_PERMISSION_DENIED, "can't write '", path.string(), "': ", std::strerror(errno),
                "; give this user the right to write there, or choose another run.dir");
    if (!locked(fd)) {
      ::close(fd);
      return Result::in_use;
    }
    if (has_its_name(fd, path)) {
      fd_ = fd;
      return Result::locked;
    }
    ::close(fd);
  }
}

}  // namespace ddhost
