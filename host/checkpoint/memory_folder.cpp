// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/memory_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/durable.hpp"
#include "ddh/sdk/kernels/counter_rng.hpp"
#include "ddh/sdk/memory/memory_disk.hpp"
#include "ddh/sdk/plugin.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr const char* kOwner = "run";

constexpr int kTries = 100;  // to make a folder; each end of a run before takes one

// own: a folder, not a link, that nobody else can have filled.
enum class Found { none, own, foreign };

Found find(const fs::path& folder) {
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0) return errno == ENOENT ? Found::none : Found::foreign;
  const bool is_own = S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() && (info.st_mode & (S_IRWXG | S_IRWXO)) == 0;
  return is_own ? Found::own : Found::foreign;
}

bool is_own_folder(const fs::path& folder) { return find(folder) == Found::own; }

[[noreturn]] void fail_removed_each_time(const fs::path& folder) {
  ddh::fail(DDH_FAILED_PRECONDITION, "'", folder.string(), "' is made and removed again and again, so no checkpoints ",
            "are kept there; end what does that, or set checkpoint.memory_every=0");
}

// In place: a memory that is full has no room for a second file, and must not stop a run that goes on from the disk.
void write_owner(const fs::path& file, uint64_t run_id) {
  std::error_code ec;
  const RangeFile out(file, fs::exists(file, ec) ? RangeFile::Mode::write : RangeFile::Mode::create);
  const std::string owner = hex(run_id);
  out.write_at(0, owner.data(), owner.size());
}

// While it lives, nobody else holds one of the folder.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder)
      : folder_(folder), fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    while (fd_ >= 0 && ::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  // Whether the folder was not removed meanwhile.
  [[nodiscard]] bool is_there() const {
    struct stat mine {
    }, named{};
    return fd_ >= 0 && ::fstat(fd_, &mine) == 0 && ::stat(folder_.c_str(), &named) == 0 && mine.st_ino == named.st_ino;
  }

 private:
  const fs::path folder_;
  const int fd_;
};

}  // namespace

fs::path memory_folder(const fs::path& run_dir) {
  std::error_code ec;
  const fs::path known = fs::weakly_canonical(run_dir, ec), real = ec ? run_dir : known;
  std::array<char, 256> host{};  // containers may share the memory, and have the same paths
  ::gethostname(host.data(), host.size() - 1);
  const fs::path folder = real.has_filename() ? real : real.parent_path();
  const uint64_t name = ddh::fnv1a(ddh::str(host.data(), ' ', folder.string()));
  return fs::path(ddh::kMemoryDisk) / ddh::str("ddhost-", ::geteuid(), "-", hex(name));
}

bool has_memory_folder(const fs::path& run_dir) { return is_own_folder(memory_folder(run_dir)); }

bool make_memory_folder(const fs::path& run_dir) {
  const fs::path folder = memory_folder(run_dir);
  for (int i = 0; i < kTries; ++i) {
    if (::mkdir(folder.c_str(), S_IRWXU) == 0) return true;
    if (errno != EEXIST)
      ddh::fail(DDH_FAILED_PRECONDITION, "checkpoint.memory_every keeps checkpoints in ", ddh::kMemoryDisk,
                ", where no folder can be made: ", std::strerror(errno), "; set it to 0");
    const Found found = find(folder);  // none: removed after mkdir() found it
    if (found == Found::own) return false;
    if (found == Found::foreign)
      ddh::fail(DDH_PERMISSION_DENIED, "'", folder.string(), "' is not a folder that this user alone can read, so no ",
                "checkpoints are kept there; remove it, or set checkpoint.memory_every=0");
  }
  fail_removed_each_time(folder);
}

std::vector<CheckpointPlace> list_memory_checkpoints(const fs::path& run_dir, int64_t last_step) {
  const fs::path folder = memory_folder(run_dir);
  if (!is_own_folder(folder)) return {};
  std::vector<CheckpointPlace> places = list_checkpoints(folder);
  std::erase_if(places, [&](const CheckpointPlace& place) { return place.step > last_step; });
  return places;
}

void tidy_memory_folder(const fs::path& run_dir, int64_t last_step) {
  const fs::path folder = memory_folder(run_dir);
  if (!is_own_folder(folder)) return;
  remove_leftovers(folder);
  static_cast<void>(remove_checkpoints_after(folder, last_step));
  if (const std::vector<CheckpointPlace> places = list_checkpoints(folder); !places.empty())
    static_cast<void>(prune_checkpoints(folder, places.front().step, {/*last=*/1}));
  remove_damaged(folder);
}

MemoryFolderId memory_folder_id(const fs::path& run_dir) {
  struct stat info {};
  if (::stat(memory_folder(run_dir).c_str(), &info) != 0) return {};
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string machine;
  file >> machine;
  return {ddh::fnv1a(machine), static_cast<uint64_t>(info.st_dev), static_cast<uint64_t>(info.st_ino)};
}

bool claim_memory_folder(const fs::path& run_dir, uint64_t run_id) {
  if (!has_memory_folder(run_dir)) return false;
  const FolderLock lock(memory_folder(run_dir));
  if (!lock.is_there()) return false;
  write_owner(memory_folder(run_dir) / kOwner, run_id);
  return true;
}

void take_memory_folder(const fs::path& run_dir, uint64_t run_id) {
  for (int i = 0; i < kTries; ++i) {
    make_memory_folder(run_dir);
    if (claim_memory_folder(run_dir, run_id)) return;
  }
  fail_removed_each_time(memory_folder(run_dir));
}

void remove_memory_folder_of(const fs::path& run_dir, uint64_t run_id) noexcept {
  try {
    if (!has_memory_folder(run_dir)) return;
    std::error_code ec;
    const FolderLock lock(memory_folder(run_dir));
    const fs::path owner = memory_folder(run_dir) / kOwner;
    if (lock.is_there() && (!fs::exists(owner, ec) || read_whole(owner) == hex(run_id))) remove_memory_folder(run_dir);
  } catch (const std::exception&) {
    // It can't be read: the next run in the folder removes it.
  }
}

void remove_memory_folder(const fs::path& run_dir) noexcept {
  try {
    const fs::path folder = memory_folder(run_dir);
    std::error_code ec;
    if (is_own_folder(folder)) fs::remove_all(folder, ec);
  } catch (const std::exception&) {
    // Out of memory: the next run in the folder removes it.
  }
}

}  // namespace ddhost
