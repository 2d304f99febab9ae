// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/memory_checkpoints.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>

#include "base/text.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/host_parts.hpp"
#include "checkpoint/memory_folder.hpp"
#include "ddh/sdk/memory/free_memory.hpp"
#include "ddh/sdk/memory/memory_disk.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/loop/room.hpp"
#include "engine/services/comm/together.hpp"
#include "engine/state/codec_state.hpp"

namespace fs = std::filesystem;

namespace ddhost {

fs::path MemoryCheckpoints::root() const { return memory_root(plan_.run_dir, plan_.memory_by_host); }

std::optional<HostSave> MemoryCheckpoints::by_host(const fs::path& resumed_from) const {
  if (!plan_.memory_by_host) return std::nullopt;
  return HostSave{services_.seat.nodes.get(), settings_.memory_copies, services_.seat.run_id, first_run(resumed_from)};
}

// A run that goes back to the disk takes another course than the one whose parts a host may still have.
uint64_t MemoryCheckpoints::first_run(const fs::path& resumed_from) const {
  return plan_.memory_resume && holds(resumed_from) ? plan_.memory_resume->first_run : services_.seat.run_id;
}

bool MemoryCheckpoints::holds(const fs::path& checkpoint) const {
  return checkpoint.parent_path() == checkpoints_folder(root());
}

StepNumbers MemoryCheckpoints::numbers_after(int64_t step, const fs::path& checkpoint) const {
  const bool is_own = holds(checkpoint);
  StepNumbers out{step, step, 0, 0};
  if (is_own) out.begun = read_step_numbers(plan_.run_dir).value_or(StepNumbers{}).begun;
  if (plan_.memory_by_host && (is_own || settings_.memory_every > 0)) out.first_run = first_run(checkpoint);
  return out;
}

std::vector<MemoryCheckpoints::Place> MemoryCheckpoints::places() const {
  std::vector<Place> out;
  for (const fs::path& folder : plan_.resume) out.push_back({folder});
  if (!plan_.memory_resume) return out;
  FoundInMemory found = find_in_memory(*services_.comm, services_.seat, plan_.run_dir, plan_.memory_resume->first_run);
  if (services_.seat.rank == 0)
    for (const std::string& damage : found.damages) services_.log->warn("{}", damage);
  if (!found.whole.empty())
    together(*services_.comm, "room for a checkpoint in memory", [&] {
      if (makes_files()) keep_found_parts(plan_.run_dir, found.whole);
    });
  for (FoundParts& one : found.whole) {
    const auto is_older = [&](const Place& place) {
      return (place.parts ? place.parts->step : step_of_checkpoint(place.folder).value_or(-1)) < one.step;
    };
    const auto at = std::find_if(out.begin(), out.end(), is_older);
    const fs::path folder = checkpoint_folder(root(), one.step);
    out.insert(at, Place{folder, std::move(one)});
  }
  if (out.empty() && !plan_.memory_resume->otherwise.empty()) ddh::fail(DDH_NOT_FOUND, plan_.memory_resume->otherwise);
  return out;
}

MemoryCheckpoints::Lack MemoryCheckpoints::bring_together(const Place& place) const {
  Lack out;
  if (!place.parts) return out;
  std::string cure;
  try {
    out.why = ddhost::bring_together(*services_.comm, services_.seat, plan_.run_dir, *place.parts);
    out.is_damage = !out.why.empty();
  } catch (const ddh::Error& error) {
    if (error.code() != DDH_RESOURCE_EXHAUSTED) throw;  // another rank may have ended
    out.why = error.what();
    if (is_lack_of_room(out.why)) cure = ddh::str("; give ", ddh::kMemoryDisk, " more room");
  }
  if (!out.why.empty())
    out.why = ddh::str("the checkpoint of step ", place.parts->step,
                       " in the memory of the hosts can't be put together: ", out.why, cure);
  return out;
}

void MemoryCheckpoints::check(const Place& place, const Manifest& manifest) const {
  if (!place.parts) return;
  together(*services_.comm, "checkpoint in memory: configuration", [&] {
    if (services_.seat.rank != 0) return;
    for (const std::string& warning : plan_.memory_resume->check(manifest, "'" + place.folder.string() + "'"))
      services_.log->warn("{}", warning);
  });
}

void MemoryCheckpoints::set_aside(const Place& place) const {
  if (place.parts ? services_.seat.local_rank() != 0 : services_.seat.rank != 0) return;
  std::error_code ec;
  const fs::path aside = place.folder.parent_path() / ("damaged-" + place.folder.filename().string());
  fs::remove_all(aside, ec);
  fs::rename(place.folder, aside, ec);
}

MemoryCheckpoints::Size MemoryCheckpoints::size_here(const StateSource& source, const CheckpointLayout& layout) const {
  const Nodes& nodes = *services_.seat.nodes;
  const int32_t here = services_.seat.node(), before = (here + nodes.count() - 1) % nodes.count();
  struct Bytes {
    uint64_t written, codec;
  } mine{};
  together(*services_.comm, "memory for checkpoints", [&] {
    if (services_.codec != nullptr) mine.codec = codec_bytes(*services_.codec, services_.seat.rank);
    mine.written = written_bytes(source, layout, services_.seat.rank == 0) + mine.codec;
  });
  std::vector<Bytes> all(static_cast<size_t>(nodes.world_size()));
  services_.comm->all_gather_bytes(&mine, all.data(), sizeof mine, "memory for checkpoints");
  Size out{0, layout.bytes()};
  for (int32_t rank = 0; rank < nodes.world_size(); ++rank) {
    out.whole += all[static_cast<size_t>(rank)].codec;
    if (nodes.node(rank) == here || (settings_.memory_copies > 1 && nodes.node(rank) == before))
      out.saved += all[static_cast<size_t>(rank)].written;
  }
  if (!plan_.memory_by_host) out.saved = out.whole;
  return out;
}

// Each would remove what the other one saves.
void MemoryCheckpoints::require_own_folder() const {
  MemoryFolderId mine;
  if (makes_files()) mine = memory_folder_id(plan_.run_dir);
  std::vector<MemoryFolderId> all(static_cast<size_t>(services_.seat.world_size()));
  services_.comm->all_gather_bytes(&mine, all.data(), sizeof mine, "memory for checkpoints");
  std::map<MemoryFolderId, size_t> ranks;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == MemoryFolderId{}) continue;
    const auto [first, is_new] = ranks.emplace(all[rank], rank);
    if (!is_new)
      ddh::fail(DDH_FAILED_PRECONDITION, "the hosts of ranks ", first->second, " and ", rank, " share '",
                memory_folder(plan_.run_dir).parent_path().string(),
                "', so each would remove the checkpoints of the other there; give each container its own, or set ",
                "checkpoint.memory_every=0");
  }
}

// The one before stays until the next is whole. After a restart one is there already, of which a host has all.
void MemoryCheckpoints::require_room(const StateSource& source, const CheckpointLayout& layout,
                                     int64_t resumed_step) const {
  const Size size = size_here(source, layout);
  together(*services_.comm, "memory for checkpoints", [&] {
    if (!makes_files()) return;
    std::error_code ec;
    const fs::path folder = memory_folder(plan_.run_dir);
    if (plan_.memory_by_host) {
      take_memory_folder(plan_.run_dir, services_.seat.run_id);
      fs::remove_all(checkpoints_folder(folder), ec);  // of a run on this host alone
      keep_parts_of_step(root(), resumed_step);
    } else {
      make_memory_folder(plan_.run_dir);
      fs::remove_all(parts_root(plan_.run_dir), ec);
      tidy_memory_folder(plan_.run_dir, resumed_step);
    }
    const bool has_one = !list_checkpoints(root()).empty();
    const auto needed = static_cast<double>(memory_needed(size.saved, size.whole, has_one));
    const ddh::FreeMemory free = ddh::free_memory();
    const double there = free_bytes(folder), left = static_cast<double>(free.bytes);
    const std::string saved = mib_text(static_cast<double>(size.saved));
    const std::string what = !plan_.memory_by_host
                                 ? ddh::str("checkpoints of ", saved, ", of which two are there at times")
                                 : ddh::str(saved, " of each checkpoint in this host, and all ",
                                            mib_text(static_cast<double>(size.whole)), " of one after a restart");
    if (services_.seat.rank == 0)
      services_.log->info("checkpoint.memory_every={}: memory has {}", settings_.memory_every, what);
    if (needed <= std::min(there, left)) return;
    const bool is_folder = needed > there;
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "checkpoint.memory_every keeps ", what, ", so it needs ", mib_text(needed),
              has_one ? " more" : "", ", but ", is_folder ? folder.parent_path().string() : free.of, " has ",
              mib_text(is_folder ? there : left), " free; set it to 0, or give the ", is_folder ? "folder" : "run",
              " more memory");
  });
  if (plan_.memory_by_host) require_own_folder();
}

void MemoryCheckpoints::remove() const {
  if (makes_files()) remove_memory_folder(plan_.run_dir);
}

std::string MemoryCheckpoints::remove_before(int64_t step) const {
  if (!makes_files()) return "";
  return std::string(failure_of([&] {
                       if (plan_.memory_by_host)
                         keep_parts_of_step(root(), step);
                       else
                         static_cast<void>(prune_checkpoints(root(), step, {/*last=*/1}));
                     }).data());
}

}  // namespace ddhost
