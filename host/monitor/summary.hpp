// SPDX-License-Identifier: Apache-2.0
//
// monitor/summary.hpp: the tables at a run's end: memory by tag and rank, and where the time went.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "ddh/ddh.h"
#include "services/interfaces.hpp"

namespace ddhost {

// One rank's facts, exchanged as bytes.
struct RankSummary {
  ddh_plan plan{};
  std::array<TagUsage, kTagCount> memory{};
  std::array<double, kSpanKinds> time_ms{};
  uint64_t peak_rss_bytes = 0;
};

class Summary {
 public:
  // Gathers the facts of all ranks; `plan` is this one's. [collective]
  Summary(RankServices& services, const ddh_plan& plan);

  // For people: two tables.
  [[nodiscard]] std::string text() const;
  // An object for metrics.jsonl.
  [[nodiscard]] std::string json(const RankServices& services, int64_t last_step, double mean_step_ms) const;

 private:
  [[nodiscard]] uint64_t unique_bytes(size_t tag) const;  // of all ranks together
  std::vector<RankSummary> ranks_;
  std::map<std::string, uint64_t> counters_;  // rank 0's
};

}  // namespace ddhost
