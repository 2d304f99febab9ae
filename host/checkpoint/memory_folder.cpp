// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/memory_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/durable.hpp"
#include "ddh/sdk/kernels/counter_rng.hpp"
#include "ddh/sdk/memory/memory_disk.hpp"
#include "ddh/sdk/plugin.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr const char* kOwner = "run";

// A folder, not a link, that nobody else can have filled.
bool is_own_folder(const fs::path& folder) {
  struct stat info {};
  return ::lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

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

void make_memory_folder(const fs::path& run_dir) {
  const fs::path folder = memory_folder(run_dir);
  if (::mkdir(folder.c_str(), S_IRWXU) == 0) return;
  if (errno == EEXIST && is_own_folder(folder)) return;
  if (errno == EEXIST)
    ddh::fail(DDH_PERMISSION_DENIED, "'", folder.string(), "' is not a folder that this user alone can read, so no ",
              "checkpoints are kept there; remove it, or set checkpoint.memory_every=0");
  ddh::fail(DDH_FAILED_PRECONDITION, "checkpoint.memory_every keeps checkpoints in ", ddh::kMemoryDisk,
            ", where no folder can ", "be made: ", std::strerror(errno), "; set it to 0");
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
  std::error_code ec;
  std::vector<fs::path> damaged;
  for (const auto& entry : fs::directory_iterator(checkpoints_folder(folder), ec))
    if (entry.path().filename().string().starts_with("damaged-")) damaged.push_back(entry.path());
  for (const fs::path& one : damaged) fs::remove_all(one, ec);
}

void claim_memory_folder(const fs::path& run_dir, uint64_t run_id) {
  if (has_memory_folder(run_dir)) replace_durably(memory_folder(run_dir) / kOwner, hex(run_id));
}

void remove_memory_folder_of(const fs::path& run_dir, uint64_t run_id) noexcept {
  try {
    std::error_code ec;
    const fs::path owner = memory_folder(run_dir) / kOwner;
    if (!fs::exists(owner, ec) || read_whole(owner) == hex(run_id)) remove_memory_folder(run_dir);
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
