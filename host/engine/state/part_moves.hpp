// SPDX-License-Identifier: Apache-2.0
//
// engine/state/part_moves.hpp: brings parts of checkpoints in memory from one host to another (checkpoint/host_parts.hpp), over
// the transport of all ranks.
#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/host_parts.hpp"
#include "engine/services/comm/comm.hpp"

namespace ddhost {

// The part of rank `part` goes from one rank to another, which is on another host.
struct PartMove {
  int32_t from, to;
  int32_t part;  // of the run that has written it
};

// With checkpoint.memory_copies=2: each rank's part to a rank of the next host.
std::vector<PartMove> moves_to_next_host(const Nodes& nodes);

// Makes all moves; `moves` is the same on all ranks. A part is noted when all of it is there, with its checksums. `folder`: of
// this host. Throws on all ranks if one of them can't read or write. [collective]
void move_parts(const Comm& comm, const std::vector<PartMove>& moves, const std::filesystem::path& folder,
                const Manifest& manifest);

}  // namespace ddhost
