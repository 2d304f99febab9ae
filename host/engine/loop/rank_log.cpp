// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/rank_log.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <string>
#include <vector>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {

void LogFailure::note(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (reason_.empty()) reason_ = reason;
}

std::string LogFailure::sentence() const {
  const std::lock_guard lock(mutex_);
  return reason_.empty() ? ""
                         : ddh::str("the log can't be written: ", reason_, "; free some space or give another run.dir");
}

RankLog make_rank_log(const RunPlan& plan, const RunConfig& config, const RankSeat& seat) {
  const bool quiet = config.get<bool>("run.quiet");
  auto console = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  console->set_level(seat.rank == 0 && !quiet ? spdlog::level::info : spdlog::level::warn);
  console->set_pattern(seat.rank == 0 ? "%v" : "rank " + std::to_string(seat.rank) + ": %v");
  std::vector<spdlog::sink_ptr> sinks = {std::move(console)};
  if (!plan.run_dir.empty()) {
    // Append mode, because all ranks write to one file.
    std::shared_ptr<spdlog::sinks::basic_file_sink_mt> file;
    try {
      file = std::make_shared<spdlog::sinks::basic_file_sink_mt>((plan.run_dir / "log.txt").string(), false);
    } catch (const spdlog::spdlog_ex& error) {
      ddh::fail(DDH_PERMISSION_DENIED, "the log can't be opened: ", error.what(), "; give another run.dir");
    }
    file->set_pattern("%Y-%m-%d %H:%M:%S.%e rank " + std::to_string(seat.rank) + " %l: %v");
    sinks.push_back(std::move(file));
  }
  auto log = std::make_shared<spdlog::logger>("rank " + std::to_string(seat.rank), sinks.begin(), sinks.end());
  log->flush_on(spdlog::level::info);
  auto failure = std::make_shared<LogFailure>();
  log->set_error_handler([failure](const std::string& reason) { failure->note(reason); });
  return {std::move(log), std::move(failure)};
}

}  // namespace ddhost
