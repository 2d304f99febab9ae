// SPDX-License-Identifier: Apache-2.0
//
// engine/record/progress_text.hpp: the progress of a run as one line that fits into a width.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/samples/train_order.hpp"
#include "engine/services/optim/micro_metrics.hpp"

namespace ddhost {

// A step as a person is told of it.
struct ProgressFacts {
  int64_t step = 0, last_step = 0;
  EpochPlace epoch{};
  std::span<const ReportedValue> values;  // the first is the loss
  double lr = 0, grad_norm = 0;
  double items_per_s = 0;  // of all ranks
  std::string_view items_name;
  double step_ms = 0, seconds_left = 0;
  uint64_t memory_bytes = 0;                 // the peak of a rank, all tags
  std::optional<double> checkpoint_seconds;  // since the newest checkpoint; nothing: there is none
};

// Narrow lines have shorter words, then fewer values: the step and the loss go last. Control characters are shown as \x1b.
std::string progress_text(const ProgressFacts& facts, size_t columns);

// As printf prints it.
std::string number_as(const char* format, double value);
// "1m05s", "2h03m", "4d05h"
std::string duration_text(double seconds);

}  // namespace ddhost
