// SPDX-License-Identifier: Apache-2.0
//
// engine/state/checkpoint_read.hpp: reads the tensors of a checkpoint into the state of a run with any strategy and world.
#pragma once

#include <filesystem>

#include "checkpoint/manifest.hpp"
#include "engine/services/comm/comm.hpp"
#include "engine/services/memory/staging.hpp"
#include "engine/state/state_entries.hpp"

namespace ddhost {

// Throws unless the checkpoint has the tensors that later phases need, and no others than those of the whole run: names the
// first that differs.
void check_same_tensors(const Manifest& manifest, const CheckpointLayout& needed, const CheckpointLayout& whole,
                        const std::string& checkpoint);

// Of this rank.
struct ReadCount {
  uint64_t needed = 0;  // bytes that it holds
  uint64_t read = 0;    // from files: chunks, with the blocks in which they begin and end
};

// Overwrites what this rank holds, and the model's buffers. Each chunk is compared with its checksum before any of it is
// used. Returns the error of the first rank that finds damage, or "" if there is none. Throws on every rank if one fails for
// another reason, and on a rank whose strategy has other values after state_commit than were read. After an error the state
// is undefined. [collective]
std::string read_checkpoint(const std::filesystem::path& folder, const Manifest& manifest, const StateSource& source,
                            const CheckpointLayout& layout, const Comm& comm, Staging& staging, ReadCount& count);

}  // namespace ddhost
