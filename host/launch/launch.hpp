// SPDX-License-Identifier: Apache-2.0
//
// launch/launch.hpp: starts the ranks, as processes or as threads, and waits for their end.
//
//   const Outcome end = launch(args, [&](RankSeat& seat) { return run_rank(plan, seat); });
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "engine/services/rank_seat.hpp"
#include "launch/kv.hpp"
#include "launch/memory_kills.hpp"
#include "launch/progress.hpp"
#include "launch/watchdog.hpp"

namespace ddhost {

// Runs one rank: returns its exit code (0 = success), or throws ddh::Error. DDH_UNAVAILABLE, DDH_ABORTED and
// DDH_CANCELLED mean that another rank is the cause.
using RankFunction = std::function<int(RankSeat&)>;

struct LaunchArgs {
  int world_size = 1;
  int ranks_per_node = 0;                 // 0 = all on one node
  bool threads = false;                   // ranks are threads of this process
  std::chrono::milliseconds grace{2000};  // time for the other ranks to end after one has failed
  // Time for all ranks to end after Ctrl-C; none: they finish the step, however long it takes. A second Ctrl-C ends
  // them.
  std::optional<std::chrono::milliseconds> stop_limit{};
  std::chrono::milliseconds echo{1000};  // a second signal within this time is a copy, sent to group and process
  WatchdogLimits watchdog{};
  CgroupFiles cgroups{};
  std::vector<std::string> libraries{};  // files of the run's plugins
};

struct Outcome {
  int exit_code = 0;     // 0; 1; 130 after SIGINT, 143 after SIGTERM
  std::string sentence;  // the reason if it is not 0; may be empty
};

// Returns when every rank has ended. Call it before any thread exists. With processes, it never returns in the
// children. If threads don't end within the limits, it prints the message and ends the process.
Outcome launch(const LaunchArgs& args, const RankFunction& rank_function);

constexpr int kMaxRanks = 1024;

// Refuses a number of ranks whose processes alone would fill the memory. Otherwise the kernel would later kill some of them
// without giving a reason. The model and its state need further memory.
void require_memory_of_processes(int world_size, uint64_t available_bytes);

// One line on stderr: "ddhost: <sentence>".
void print_sentence(const std::string& sentence);

}  // namespace ddhost
