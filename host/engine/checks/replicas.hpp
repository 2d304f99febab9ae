// SPDX-License-Identifier: Apache-2.0
//
// engine/checks/replicas.hpp: compares values that several ranks hold: entries of the strategy's state with
// replica_count above 1, and the model's buffers. Ranks whose gradients were never summed, or whose memory was
// overwritten, differ here.
//
// Each block of 64 elements has a hash of its place and its bytes. The sum of these hashes over the ranks that hold one
// replica of a tensor does not depend on how the replica is divided. So each rank adds up its hashes with a factor for
// the replica; the factors of all replicas add up to 0, and so does the sum over all ranks if the replicas are equal.
// One number per rank is compared; which tensor differs is only asked if the sum is not 0.
#pragma once

#include "checkpoint/checkpoint_layout.hpp"
#include "engine/services/comm/comm.hpp"
#include "engine/state/state_entries.hpp"

namespace ddhost {

// Throws, on every rank, if replicas differ after step `step`: names the first tensor that differs, and the ranks.
// Buffers with DDH_SYNC_STEP are left out, because they may differ until the next step begins. [collective]
void require_equal_replicas(const StateSource& source, const CheckpointLayout& layout, const Comm& comm,
                            Staging& staging, int64_t step);

}  // namespace ddhost
