// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/memory_checkpoints.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/text.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/host_parts.hpp"
#include "checkpoint/memory_folder.hpp"
#include "ddh/sdk/memory/free_memory.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/loop/room.hpp"
#include "engine/services/comm/together.hpp"

namespace fs = std::filesystem;

namespace ddhost {

fs::path MemoryCheckpoints::root() const {
  return plan_.memory_by_host ? parts_root(plan_.run_dir) : memory_folder(plan_.run_dir);
}

std::optional<HostSave> MemoryCheckpoints::by_host() const {
  if (!plan_.memory_by_host) return std::nullopt;
  return HostSave{services_.seat.nodes.get(), settings_.memory_copies, services_.seat.run_id};
}

std::vector<MemoryCheckpoints::Place> MemoryCheckpoints::places() const {
  std::vector<Place> out;
  for (const fs::path& folder : plan_.resume) out.push_back({folder});
  if (!plan_.memory_resume) return out;
  FoundInMemory found = find_in_memory(*services_.comm, services_.seat, plan_.run_dir, plan_.memory_resume->last_step);
  if (services_.seat.rank == 0)
    for (const std::string& damage : found.damages) services_.log->warn("{}", damage);
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

void MemoryCheckpoints::bring_together(const Place& place) const {
  if (place.parts) ddhost::bring_together(*services_.comm, services_.seat, plan_.run_dir, *place.parts);
}

void MemoryCheckpoints::set_aside(const Place& place) const {
  if (place.parts ? services_.seat.local_rank() != 0 : services_.seat.rank != 0) return;
  std::error_code ec;
  const fs::path aside = place.folder.parent_path() / ("damaged-" + place.folder.filename().string());
  fs::remove_all(aside, ec);
  fs::rename(place.folder, aside, ec);
}

// Of a checkpoint, in the memory of this host.
uint64_t MemoryCheckpoints::bytes_here(const StateSource& source, const CheckpointLayout& layout) const {
  if (!plan_.memory_by_host) return layout.bytes();
  const Nodes& nodes = *services_.seat.nodes;
  const int32_t here = services_.seat.node(), before = (here + nodes.count() - 1) % nodes.count();
  uint64_t mine = 0, sum = 0;
  together(*services_.comm, "memory for checkpoints",
           [&] { mine = written_bytes(source, layout, services_.seat.rank == 0); });
  std::vector<uint64_t> all(static_cast<size_t>(nodes.world_size()));
  services_.comm->all_gather_bytes(&mine, all.data(), sizeof mine, "memory for checkpoints");
  for (int32_t rank = 0; rank < nodes.world_size(); ++rank)
    if (nodes.node(rank) == here || (settings_.memory_copies > 1 && nodes.node(rank) == before))
      sum += all[static_cast<size_t>(rank)];
  return sum;
}

// For two: the one before stays until the next is whole. After a restart it is there already.
void MemoryCheckpoints::require_room(const StateSource& source, const CheckpointLayout& layout,
                                     int64_t resumed_step) const {
  const uint64_t bytes = bytes_here(source, layout);
  together(*services_.comm, "memory for checkpoints", [&] {
    if (!makes_files()) return;
    make_memory_folder(plan_.run_dir);
    std::error_code ec;
    const fs::path folder = memory_folder(plan_.run_dir);
    if (plan_.memory_by_host) {
      fs::remove_all(checkpoints_folder(folder), ec);  // of a run on this host alone
      keep_parts_of_step(root(), resumed_step);
      claim_memory_folder(plan_.run_dir, services_.seat.run_id);
    } else {
      fs::remove_all(parts_root(plan_.run_dir), ec);
      tidy_memory_folder(plan_.run_dir, resumed_step);
    }
    const std::string size = mib_text(static_cast<double>(bytes));
    const uint64_t more = list_checkpoints(root()).empty() ? 2 : 1;
    const double needed = static_cast<double>(more * bytes), there = free_bytes(folder);
    const ddh::FreeMemory left = ddh::free_memory();
    if (services_.seat.rank == 0 && plan_.memory_by_host)
      services_.log->info(
          "checkpoint.memory_every={}: of each checkpoint this host keeps {} in memory; two are there at times",
          settings_.memory_every, size);
    else if (services_.seat.rank == 0)
      services_.log->info("checkpoint.memory_every={}: checkpoints of {} in memory, of which two are there at times",
                          settings_.memory_every, size);
    if (needed > std::min(there, static_cast<double>(left.bytes)))
      ddh::fail(DDH_RESOURCE_EXHAUSTED, "checkpoint.memory_every needs room for ", counted(more, "checkpoint"), " of ",
                size, ", but ", needed > there ? folder.parent_path().string() : left.of, " has ",
                mib_text(needed > there ? there : static_cast<double>(left.bytes)), " free; set it to 0, or give the ",
                needed > there ? "folder" : "run", " more memory");
  });
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
