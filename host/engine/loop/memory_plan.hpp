// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/memory_plan.hpp: the memory that a run will take, before there is a rank (`ddhost plan`). The strategy is
// attached for each rank without peers (DDH_ATTACH_DRY), the model estimates its activations, and the transport says what
// its groups take.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "ddh/ddh.h"
#include "engine/services/rank_seat.hpp"
#include "engine/services/run_config.hpp"
#include "engine/settings/run_plan.hpp"

namespace ddhost {

// Up to this number of ranks all are planned; of more, the first and the last.
inline constexpr int kMostPlannedRanks = 512;

// The tags that a plan knows, in the order in which a run takes them.
inline constexpr std::array<const char*, 5> kPlannedTags = {"param", "grad", "optim", "comm", "act"};
inline constexpr size_t kCommTag = 3, kActTag = 4;
using PlannedBytes = std::array<uint64_t, kPlannedTags.size()>;

// Bytes of one rank by tag, addressable as in the tables of a run.
struct RankMemory {
  int rank = 0;
  uint64_t param = 0, grad = 0, optim = 0, comm = 0, act = 0;
  uint64_t shared = 0;     // of param: in pages of other ranks, which count them too
  uint64_t pinned = 0;     // of param, grad and optim: the host's memory, where the device has its own
  uint64_t host_comm = 0;  // of comm: the same
  uint64_t file = 0;       // in files
  // In a step, to other ranks and of these to ranks on other nodes; nullopt: the strategy does not say.
  std::optional<uint64_t> sent, sent_between_nodes;
  [[nodiscard]] uint64_t total() const { return param + grad + optim + comm + act; }
  // Shared pages are counted once on a machine.
  [[nodiscard]] uint64_t unique() const { return total() - shared; }
  // What it takes of one kind of memory; shared pages count once. Pinned memory is the optimizer's first.
  [[nodiscard]] PlannedBytes in(MemoryKind kind, bool device_has_memory) const;
};
inline uint64_t sum(const PlannedBytes& bytes) { return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}); }
// The first tag for which `left` does not suffice; nullptr: all fit.
const char* first_that_does_not_fit(const PlannedBytes& bytes, uint64_t left);

// `host_comm`: of a transport of host memory, `device_comm`: of one of the device's memory.
RankMemory rank_memory(const ddh_plan& plan, int rank, uint64_t host_comm, uint64_t device_comm, uint64_t activations);

struct MemoryPlan {
  std::string strategy, model;
  int world_size = 1;
  bool device_has_memory = false;   // of its own
  bool has_nodes = false;           // ranks are on several nodes
  bool knows_comm = true;           // the transport says what it takes
  bool knows_act = true;            // the model estimates its activations
  uint64_t n_params = 0;            // elements
  uint64_t memory_checkpoints = 0;  // bytes of the host, beside those of the ranks (checkpoint.memory_every)
  bool has_hosts = false;           // which have that each, at most
  struct Program {
    std::string name;
    bool is_evaluated = false;  // the model has a program for that
  };
  std::vector<Program> programs;  // those that the run trains
  std::vector<RankMemory> ranks;  // those that were planned

  [[nodiscard]] const RankMemory& largest() const;
  // Of all ranks, without shared pages; nullopt: not all were planned.
  [[nodiscard]] std::optional<uint64_t> unique_of_all() const;
};

// `config`: the run's own copy. `seat`: of rank 0; kv is not used. Error: the strategy can't be planned, or any of the
// plugins refuses its options.
MemoryPlan plan_memory(const RunPlan& plan, std::unique_ptr<RunConfig> config, const RankSeat& seat);

// What a rank of a run has planned, and what it sees before it allocates that.
struct SeenMemory {
  RankMemory planned;
  ddh_device_info device;
  uint64_t addresses_left;  // of its process
};
struct FitQuestion {
  std::string device;  // its id
  bool device_has_memory;
  bool ranks_are_threads;           // of one process
  uint64_t memory_checkpoints = 0;  // bytes of the host, beside those of the ranks
};
struct DoesNotFit {
  Shortage shortage;
  std::string sentence;
};
// The first memory that does not suffice for all ranks of a machine; nullopt: the run fits. Reads what the machine has free.
std::optional<DoesNotFit> first_shortage(const std::vector<SeenMemory>& ranks, const FitQuestion& question);

}  // namespace ddhost
