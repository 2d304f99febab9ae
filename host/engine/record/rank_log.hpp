// SPDX-License-Identifier: Apache-2.0
//
// engine/record/rank_log.hpp: a rank's texts. Every line of its log goes to <run.dir>/log.txt; rank 0's, and every rank's
// warnings, to stderr. Results go to stdout.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "engine/record/terminal_line.hpp"
#include "engine/services/rank_seat.hpp"
#include "engine/services/run_config.hpp"
#include "engine/settings/run_plan.hpp"

namespace spdlog {
class logger;
}

namespace ddhost {

// Error: stdout is closed, its reader has ended, or its disk is full.
void write_stdout(std::string_view text);

// A text that a model makes, which may hold any bytes. Files and pipes get it as it is. A terminal gets control characters
// and bytes that are not UTF-8 as \x1b, because they would change the terminal.
class ModelText {
 public:
  ModelText();
  explicit ModelText(bool is_for_terminal) : is_for_terminal_(is_for_terminal) {}
  // What to write for the next piece. A character whose rest is still to come waits for it.
  std::string next(std::string_view piece);
  // What is left at the end of the text.
  std::string rest();

 private:
  const bool is_for_terminal_;
  std::string unfinished_;
};

// The first line that could not be written. The run goes on and reports it at its end. Thread-safe.
class LogFailure {
 public:
  void note(const std::string& reason);
  // A sentence, or "".
  [[nodiscard]] std::string sentence() const;

 private:
  mutable std::mutex mutex_;
  std::string reason_;
};

struct RankLog {
  std::shared_ptr<spdlog::logger> logger;
  std::shared_ptr<const LogFailure> failure;
  std::shared_ptr<TerminalLine> line;  // of this rank; lines of the log take its place
};
// Error: log.txt can't be opened.
RankLog make_rank_log(const RunPlan& plan, const RunConfig& config, const RankSeat& seat);

}  // namespace ddhost
