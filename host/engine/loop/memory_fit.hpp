// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/memory_fit.hpp: whether what the ranks of a run plan fits into the memory that they share, with a reserve for
// what can't be planned.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ddh/ddh.h"
#include "engine/loop/memory_plan.hpp"

namespace ddhost {

// What a rank of a run has planned, and what it sees before it allocates that. Ranks send each other its bytes.
struct SeenMemory {
  RankMemory planned;
  ddh_device_info device;
  uint64_t addresses_left;  // of its process
  int32_t host;             // ranks with the same number share a host's memory
  uint64_t host_left;
  std::array<char, 192> host_left_of;  // "this machine", "the control group /user.slice"; ends with 0
};
// Fills in what the rank sees of its host.
void see_host(SeenMemory& seen, const RankSeat& seat);
struct FitQuestion {
  std::string device;  // its id
  bool device_has_memory;
  bool ranks_are_threads;  // of one process
  CheckpointMemory checkpoints = {};
};
// Whether a child of the rank that has asked can seek changes. It would take addresses of its process, open the device again,
// and lack the other threads.
bool can_plan_in_child(const FitQuestion& question, MemoryKind lacking);
struct DoesNotFit {
  Shortage shortage;
  std::string sentence;
};
// What a rank takes beside its plan after its fit is asked: batches, heaps, blocks that allocators keep, and what the first
// products of libraries make. It can't be planned, and grows with the activations. docs/configuration.md has what was measured,
// from which the base and the share of the activations are. Of a device with its own memory nothing is known.
uint64_t reserve_of_rank(const RankMemory& rank, MemoryKind kind, bool device_has_memory);

// The first memory that does not suffice for all ranks that share it; nullopt: the run fits. What a plan takes and the reserve
// of each rank count.
std::optional<DoesNotFit> first_shortage(const std::vector<SeenMemory>& ranks, const FitQuestion& question);

}  // namespace ddhost
