// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/rank_log.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <string>
#include <vector>

namespace ddhost {

std::shared_ptr<spdlog::logger> make_rank_log(const RunPlan& plan, const RunConfig& config, const RankSeat& seat) {
  const bool quiet = config.get<bool>("run.quiet");
  auto console = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  console->set_level(seat.rank == 0 && !quiet ? spdlog::level::info : spdlog::level::warn);
  console->set_pattern(seat.rank == 0 ? "%v" : "rank " + std::to_string(seat.rank) + ": %v");
  std::vector<spdlog::sink_ptr> sinks = {std::move(console)};
  if (!plan.run_dir.empty()) {
    // Append mode, because all ranks write to one file.
    auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>((plan.run_dir / "log.txt").string(), false);
    file->set_pattern("%Y-%m-%d %H:%M:%S.%e rank " + std::to_string(seat.rank) + " %l: %v");
    sinks.push_back(std::move(file));
  }
  auto log = std::make_shared<spdlog::logger>("rank " + std::to_string(seat.rank), sinks.begin(), sinks.end());
  log->flush_on(spdlog::level::info);
  return log;
}

}  // namespace ddhost
