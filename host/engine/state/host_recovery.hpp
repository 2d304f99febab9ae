// SPDX-License-Identifier: Apache-2.0
//
// engine/state/host_recovery.hpp: finds the checkpoints in memory of the hosts of a run of which all parts are there
// (checkpoint/host_parts.hpp), and gives every host all of one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/services/comm/comm.hpp"
#include "engine/services/rank_seat.hpp"

namespace ddhost {

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

// Checks all parts on all hosts, which are this run's from here on. Without steps after `last_step`: they are of a run that was
// in the folder before. [collective]
FoundInMemory find_in_memory(const Comm& comm, const RankSeat& seat, const std::filesystem::path& run_dir,
                             int64_t last_step);

// Gives each host the parts that it lacks, and makes it a checkpoint there: checkpoint_folder(parts_root(run_dir), step).
// Throws on all ranks if one of them can't. [collective]
void bring_together(const Comm& comm, const RankSeat& seat, const std::filesystem::path& run_dir,
                    const FoundParts& found);

}  // namespace ddhost
