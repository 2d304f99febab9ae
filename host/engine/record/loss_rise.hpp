// SPDX-License-Identifier: Apache-2.0
//
// engine/record/loss_rise.hpp: notices that the loss of a run has jumped, for the sentence that says so. It reads losses
// alone, so it changes nothing of a run.
//
// The median of the last 5 losses is compared with the median of up to 100 before them. One bad batch moves neither. Three
// limits keep noise from being taken for a jump. The rise must exceed the noise of those losses: three times the distance of
// their 95th percentile from their median, and 1.2 times that of the largest. It must exceed a fifth of the loss, and a
// tenth of what the run has gained since its first step. In the first steps the noise is not known: then four of the 5
// losses must be above all before, and the rise must exceed half of the loss.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/services/run_config.hpp"

namespace ddhost {

class LossRise {
 public:
  struct Jump {
    double from = 0, to = 0;  // medians
    int64_t steps = 0;        // within how many steps
  };

  // The loss of the next step. A jump is reported once; what follows it is compared with the new level.
  std::optional<Jump> add(double loss);

 private:
  std::vector<double> last_;  // at most those that are compared
  std::optional<double> first_;
  bool has_jumped_ = false;
};

// "loss rose from 2.1 to 6.3 within 5 steps; lower optimizer.lr, ...": with what the run can change.
std::string jump_sentence(const LossRise::Jump& jump, const RunConfig& config);

}  // namespace ddhost
