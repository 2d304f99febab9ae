// SPDX-License-Identifier: Apache-2.0
//
// engine/record/slow_ranks.hpp: names a rank that the others wait for. Every 50 steps the ranks exchange the time that each
// took by section, and rank 0 compares them with the median rank. It reads times alone, so it changes nothing of a run.
//
// All ranks take equally long between two exchanges, because the fast ones wait in collectives. So the time outside of
// collectives is compared. A slow link is not found so: all wait for it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/services/tables/interfaces.hpp"

namespace ddhost {

enum class StepSection : uint8_t { compute, data, other };
inline constexpr size_t kStepSections = 3;

// Milliseconds of a rank's step outside of collectives. Compute: forward, backward, optimizer. Data: waiting for micro-batches.
// Other: files, monitors, the code of the strategy and of the host.
using SectionTimes = std::array<double, kStepSections>;

struct SlowRank {
  int32_t rank = 0;
  StepSection section = StepSection::compute;  // where it loses most
  double ms = 0, median_ms = 0;                // of a step, in this section
  bool operator==(const SlowRank&) const = default;
};

// The rank that takes longest, if that is above 1.2 times the median rank and by at least 2 ms. `steps`: of each rank, the
// mean of some steps. With an even number of ranks the median is the lower of the two in the middle.
std::optional<SlowRank> slowest_rank(std::span<const SectionTimes> steps);

class SlowRanks {
 public:
  // `services` outlives the object.
  explicit SlowRanks(RankServices& services);

  // Called after each step. [collective in every 50th]
  void step_done(int64_t step);

 private:
  [[nodiscard]] SectionTimes times_now() const;
  void tell(int64_t step, const SlowRank& slow) const;

  RankServices& services_;
  const int64_t every_;            // steps; a multiple of the strategy's rhythm
  std::optional<int64_t> since_;   // the step after which times are compared next
  SectionTimes before_{};          // times until then
  std::optional<SlowRank> named_;  // in the last comparison
};

}  // namespace ddhost
