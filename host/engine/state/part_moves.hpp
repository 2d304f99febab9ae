// SPDX-License-Identifier: Apache-2.0
//
// engine/state/part_moves.hpp: brings parts of checkpoints in memory from one host to another (checkpoint/host_parts.hpp), over
// the transport of all ranks: at a save, and to give every host all of a checkpoint after a restart (host_recovery.cpp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/host_parts.hpp"
#include "engine/services/comm/comm.hpp"
#include "engine/services/rank_seat.hpp"

namespace ddhost {

// The part of rank `part` goes from one rank to another, which is on another host.
struct PartMove {
  int32_t from, to;
  int32_t part;  // of the run that has written it
};

// With checkpoint.memory_copies=2: each rank's part to a rank of the next host.
std::vector<PartMove> moves_to_next_host(const Nodes& nodes);

// Makes all moves; `moves` is the same on all ranks. A part is noted when all of it is there, with its checksums. `folder`: of
// this host. Returns the first damage (first_damage), or "". Throws on all ranks if one of them can't read or write.
// [collective]
[[nodiscard]] std::string move_parts(const Comm& comm, const std::vector<PartMove>& moves,
                                     const std::filesystem::path& folder, const Manifest& manifest);

// A checkpoint of which the hosts have all parts.
struct FoundParts {
  uint64_t run_id;
  int64_t step;
  int32_t world_size;                         // of the run that has written it
  std::vector<std::vector<int32_t>> holders;  // of each part: a rank of each host that has it, ascending
};

struct FoundInMemory {
  std::vector<FoundParts> whole;     // the newest first
  std::vector<std::string> damages;  // sentences about parts that can't be used
};

// Checks all parts on all hosts, which are this run's from here on. `first_run`: StepNumbers::first_run of the run; parts of
// another run that was in the folder before are left out. [collective]
FoundInMemory find_in_memory(const Comm& comm, const RankSeat& seat, const std::filesystem::path& run_dir,
                             uint64_t first_run);

// Which part goes where, so that each host has all.
std::vector<PartMove> moves_to_all_hosts(const FoundParts& found, const Nodes& nodes);

// Removes from this host what is in none of `whole`, so that there is room for all of one.
void keep_found_parts(const std::filesystem::path& run_dir, const std::vector<FoundParts>& whole);

// Gives each host the parts that it lacks, and makes it a checkpoint there: checkpoint_folder(parts_root(run_dir), step).
// Returns the first damage, or "". Throws on all ranks if one of them can't read or write. [collective]
[[nodiscard]] std::string bring_together(const Comm& comm, const RankSeat& seat, const std::filesystem::path& run_dir,
                                         const FoundParts& found);

}  // namespace ddhost
