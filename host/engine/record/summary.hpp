// SPDX-License-Identifier: Apache-2.0
//
// engine/record/summary.hpp: the tables at a run's end: memory by tag and rank, memory of the processes, and time by phase.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ddh/ddh.h"
#include "engine/record/process_memory.hpp"
#include "engine/record/run_output.hpp"
#include "engine/services/tables/interfaces.hpp"

namespace ddhost {

// One rank's facts, exchanged as bytes.
struct RankSummary {
  ddh_plan plan{};
  uint64_t planned_act = 0;  // the most that activations take at a time, of a training; 0: not known
  std::array<TagUsage, kTagCount> memory{};
  std::array<double, kSpanKinds> time_ms{};
  uint64_t peak_rss_bytes = 0;
  ProcessMemory process;
  AnonMarks anon;
  bool device_has_memory = false;  // of its own; its tags then say nothing of the process
};

// The model's estimate of a program's cost.
struct WorkEstimate {
  uint32_t n_samples = 1;  // in one micro-batch
  double forward_flops = 0, backward_flops = 0;
  uint64_t activation_bytes = 0;  // without recomputation
};

// The work of all ranks on a program.
struct ProgramWork {
  std::string program;
  WorkEstimate estimate;
  uint64_t samples = 0;
  double seconds = 0;
  [[nodiscard]] double flops_per_s() const {
    const double flops = (estimate.forward_flops + estimate.backward_flops) / estimate.n_samples;
    return seconds > 0 ? flops * static_cast<double>(samples) / seconds : 0;
  }
};

// The fastest arithmetic of a rank.
struct RankPeak {
  int threads = 1;
  double flops_per_s = 0;  // one core's, measured, times `threads`; 0: not known, as on a GPU
  std::string type;        // "fp32", "bf16": of the factors that it is measured with
};

class Summary {
 public:
  // Gathers the facts of all ranks; `plan`, `planned_act` and `anon` are this rank's. [collective]
  Summary(RankServices& services, const ddh_plan& plan, uint64_t planned_act, const AnonMarks& anon);
  // Adds the speed and the activations of each program to text and json.
  void set_work(std::vector<ProgramWork> work, RankPeak peak);

  // The tables as text that fits into a width.
  [[nodiscard]] std::string text(size_t columns) const;
  // An object for metrics.jsonl.
  [[nodiscard]] std::string json(const RankServices& services, int64_t last_step,
                                 const RunOutput::Totals& totals) const;

 private:
  [[nodiscard]] uint64_t unique_bytes(size_t tag) const;  // of all ranks together
  [[nodiscard]] double flops_per_s_of_a_rank(const ProgramWork& work) const {
    return work.flops_per_s() / static_cast<double>(ranks_.size());
  }
  // Model FLOPs utilization: the part of the peak that the model's operations take.
  [[nodiscard]] double mfu(const ProgramWork& work) const { return flops_per_s_of_a_rank(work) / peak_.flops_per_s; }
  // Where the memory of a rank's process is, now: PSS in bytes. What is named is counted by itself, so the difference may be
  // below 0.
  struct Split {
    int64_t tags = 0;       // as counted, without pages that were never touched
    int64_t pools = 0;      // blocks that allocators keep, such as those of freed activations
    int64_t data = 0;       // what the model's creation allocated: data sets
    int64_t libraries = 0;  // files with code, and what they had allocated when the rank began
    int64_t files = 0;      // others, of data
    int64_t stacks = 0, pss = 0;
    [[nodiscard]] int64_t named() const { return tags + pools + data + libraries + files + stacks; }
    [[nodiscard]] int64_t difference() const { return pss - named(); }
  };
  [[nodiscard]] std::vector<Split> splits() const;  // per rank; empty: the system does not say
  // Tables with a column or a row for each rank, or for the least, the median and the most of many ranks.
  [[nodiscard]] std::string memory_text(size_t columns) const;
  [[nodiscard]] std::string process_text(size_t columns) const;
  [[nodiscard]] std::string time_text(size_t columns) const;
  [[nodiscard]] std::string work_text() const;
  std::vector<RankSummary> ranks_;
  std::map<std::string, uint64_t> counters_;  // rank 0's
  std::vector<ProgramWork> work_;
  RankPeak peak_;
};

}  // namespace ddhost
