// SPDX-License-Identifier: Apache-2.0
//
// engine/record/progress_report.hpp: tells a person how far a run is: on a terminal one line that is drawn again, elsewhere a
// plain line from time to time. A step that is not told costs a comparison of times.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "engine/record/progress_text.hpp"
#include "engine/record/terminal_line.hpp"
#include "engine/services/run_config.hpp"

namespace ddhost {

class ProgressReport {
 public:
  using Clock = std::chrono::steady_clock;

  // The steps of the run are those from `begun` + 1 to `last_step`.
  ProgressReport(const RunConfig& config, std::shared_ptr<TerminalLine> line, int64_t begun, int64_t last_step);

  void begin(Clock::time_point now) { told_ = now; }
  // Called after each step. Whether tell() is to be called.
  [[nodiscard]] bool is_due(int64_t step, Clock::time_point now) const;
  // Sets last_step, seconds_left and checkpoint_seconds of `facts`.
  void tell(ProgressFacts facts, Clock::time_point now);
  void step_took(double ms) { smooth_ms_ = smooth_ms_ == 0 ? ms : 0.9 * smooth_ms_ + 0.1 * ms; }
  // `step`: of the newest checkpoint; 0: none.
  void saved(int64_t step);

 private:
  enum class Form { kNone, kLine, kPlain };
  [[nodiscard]] int64_t tenth(int64_t step) const;

  const std::shared_ptr<TerminalLine> line_;
  const int64_t begun_, last_step_;
  Form form_ = Form::kNone;
  Clock::duration every_{};  // of plain lines
  Clock::time_point told_{};
  int64_t told_step_;
  int64_t saved_step_ = 0;
  std::optional<Clock::time_point> saved_;
  double smooth_ms_ = 0;
};

}  // namespace ddhost
