// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/memory_plan.hpp: the memory that a run will take, before there is a rank (`ddhost plan`). The strategy is
// attached for each rank without peers (DDH_ATTACH_DRY), the model estimates its activations, and the transport says what
// its groups take.
#pragma once

#include <algorithm>
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

// Up to this number of ranks `ddhost plan` plans all; of more, the first and the last.
inline constexpr int kMostPlannedRanks = 512;
// The same where the question is only whether a run fits, because a rank takes some milliseconds to plan.
inline constexpr int kMostCheckedRanks = 8;

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

// "planned for each rank, in MB: param 1.2, grad 1.2, ...", of all tags; in one line.
std::string plan_text(const RankMemory& plan);

// What checkpoints take of a host's memory, without tensors of the strategy's own.
struct CheckpointMemory {
  uint64_t kept = 0;     // those in memory (checkpoint.memory_every); of several hosts the most that each keeps
  uint64_t copies = 0;   // of all ranks together: what is written while training goes on
  uint64_t of_rank = 0;  // that each rank takes beside
  [[nodiscard]] uint64_t copies_of(uint64_t n_ranks) const { return copies + n_ranks * of_rank; }
  [[nodiscard]] uint64_t bytes(uint64_t n_ranks) const { return kept + copies_of(n_ranks); }
  // The most that a rank copies: no more than it holds.
  [[nodiscard]] uint64_t most_of_rank(const RankMemory& rank) const {
    return std::min(copies, rank.param + rank.optim + rank.file) + of_rank;
  }
};

struct MemoryPlan {
  std::string strategy, model;
  int world_size = 1;
  bool device_has_memory = false;  // of its own
  bool has_nodes = false;          // ranks are on several nodes
  bool knows_comm = true;          // the transport says what it takes
  bool knows_act = true;           // the model estimates its activations
  uint64_t n_params = 0;           // elements
  CheckpointMemory checkpoints;    // beside the bytes of the ranks
  bool has_hosts = false;          // which have that each, at most
  // Of the process that planned: what the model's data sets take, which each rank has, and its libraries, whose pages most
  // ranks share.
  uint64_t data_sets = 0, libraries = 0;
  struct Program {
    std::string name;
    bool is_evaluated = false;  // the model has a program for that
  };
  std::vector<Program> programs;  // those that the run trains
  struct Gradient {
    std::string parameter;
    uint64_t bytes = 0;
  };
  std::vector<Gradient> in_blocks;  // gradients that no rank has whole
  std::vector<RankMemory> ranks;    // those that were planned

  [[nodiscard]] const RankMemory& largest() const;
  // Of all ranks, without shared pages; nullopt: not all were planned.
  [[nodiscard]] std::optional<uint64_t> unique_of_all() const;
  // The same by tag, of one kind of memory; kAddresses: of all kinds.
  [[nodiscard]] std::optional<PlannedBytes> unique_of_all(MemoryKind kind) const;
};

// Plans runs one after the other. A model may read much data when it is made, so it serves the next run too if it has read
// nothing of the configuration that is different there.
class MemoryPlanner {
 public:
  MemoryPlanner();
  ~MemoryPlanner();
  MemoryPlanner(const MemoryPlanner&) = delete;
  MemoryPlanner& operator=(const MemoryPlanner&) = delete;

  // `config`: the run's own copy. `seat`: of rank 0; kv is not used. What it refers to outlives this object. `most_ranks`: of
  // more, the first and the last are planned. Error: the strategy can't be planned, or any of the plugins refuses its options.
  MemoryPlan plan(const RunPlan& plan, std::unique_ptr<RunConfig> config, const RankSeat& seat, int most_ranks);

 private:
  struct Copies;
  class OneRun;
  std::unique_ptr<OneRun> first_;  // it has the model
};

}  // namespace ddhost
