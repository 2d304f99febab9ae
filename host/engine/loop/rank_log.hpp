// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/rank_log.hpp: a rank's log: every line goes to <run.dir>/log.txt; rank 0's, and every rank's warnings, to stderr.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "engine/loop/run_plan.hpp"
#include "engine/services/rank_seat.hpp"
#include "engine/services/run_config.hpp"

namespace spdlog {
class logger;
}

namespace ddhost {

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
};
// Error: log.txt can't be opened.
RankLog make_rank_log(const RunPlan& plan, const RunConfig& config, const RankSeat& seat);

}  // namespace ddhost
