// SPDX-License-Identifier: Apache-2.0
//
// engine/monitor/summary.hpp: the tables at a run's end: memory by tag and rank, and time by phase.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ddh/ddh.h"
#include "engine/services/interfaces.hpp"

namespace ddhost {

// One rank's facts, exchanged as bytes.
struct RankSummary {
  ddh_plan plan{};
  std::array<TagUsage, kTagCount> memory{};
  std::array<double, kSpanKinds> time_ms{};
  uint64_t peak_rss_bytes = 0;
};

// The model's estimate of a program's cost.
struct WorkEstimate {
  uint32_t n_samples = 1;  // in one micro-batch
  double forward_flops = 0, backward_flops = 0;
  uint64_t activation_bytes = 0;  // without recomputation
};

// The work of all ranks on a program.
struct WorkDone {
  std::string program;
  uint64_t samples = 0;
  double seconds = 0;
  int threads = 1;              // of a rank
  double peak_flops_per_s = 0;  // one core's, measured, times `threads`; 0: not known, as on a GPU
};

// The memory of a rank that its strategy has planned, as a table.
std::string plan_text(const ddh_plan& plan);

class Summary {
 public:
  // Gathers the facts of all ranks; `plan` is this rank's. [collective]
  Summary(RankServices& services, const ddh_plan& plan);
  // Adds the speed of `done` and the activations to text and json.
  void set_work(const WorkEstimate& estimate, WorkDone done);

  // Two tables as text.
  [[nodiscard]] std::string text() const;
  // An object for metrics.jsonl.
  [[nodiscard]] std::string json(const RankServices& services, int64_t last_step, double mean_step_ms) const;

 private:
  [[nodiscard]] uint64_t unique_bytes(size_t tag) const;  // of all ranks together
  [[nodiscard]] double flops_per_s() const;               // of all ranks together
  [[nodiscard]] double flops_per_s_of_a_rank() const { return flops_per_s() / static_cast<double>(ranks_.size()); }
  // Model FLOPs utilization: the part of the peak that the model's operations take.
  [[nodiscard]] double mfu() const { return flops_per_s_of_a_rank() / done_.peak_flops_per_s; }
  [[nodiscard]] std::string work_text() const;
  std::vector<RankSummary> ranks_;
  std::map<std::string, uint64_t> counters_;  // rank 0's
  std::optional<WorkEstimate> estimate_;
  WorkDone done_;
};

}  // namespace ddhost
