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
#include <stdexcept>
#include <string>

#include "ddh/sdk/memory/free_memory.hpp"
#include "engine/calls/rank_record.hpp"
#include "engine/services/rank_seat.hpp"
#include "launch/cluster/cluster.hpp"
#include "launch/kv.hpp"
#include "launch/loader_record.hpp"
#include "launch/memory_kills.hpp"
#include "launch/output_relay.hpp"
#include "launch/progress.hpp"
#include "launch/rank_range.hpp"
#include "launch/watchdog.hpp"

namespace ddhost {

// Runs one rank: returns its exit code (0 = success), or throws ddh::Error. DDH_UNAVAILABLE, DDH_ABORTED and
// DDH_CANCELLED mean that another rank is the cause.
using RankFunction = std::function<int(RankSeat&)>;

struct Outcome;

// A run whose ranks are starting or at work. The references are valid until the companion's end().
struct RunView {
  const LoaderRecord& record;
  const Progress& progress;
  RankRange ranks;  // of this launcher
  pid_t loader;     // the process of ranks that are threads; it may have ended
};

// What runs in the launcher beside its loop, in a thread of its own.
class Companion {
 public:
  Companion() = default;
  Companion(const Companion&) = delete;
  Companion& operator=(const Companion&) = delete;
  virtual ~Companion() = default;
  // The loader has been forked, and no other process will be until end().
  virtual void begin(const RunView& run) = 0;
  // All ranks have ended. When it returns, its thread has ended too.
  virtual void end() = 0;
  // In the loader: closes what belongs to the launcher.
  virtual void forget_in_child() = 0;
};

struct LaunchArgs {
  int world_size = 1;
  int ranks_per_node = 0;                             // of nodes that are simulated on one machine; 0: none are
  Cluster* cluster = nullptr;                         // the other launchers of the run; null: there are none
  bool threads = false;                               // ranks are threads of one process; unless a Prepare decides it
  std::chrono::milliseconds failure_grace{2000};      // time for the other ranks to end after one has failed
  std::chrono::milliseconds grace_after_others{500};  // the same after one of another launcher has; the shorter counts
  // After a signal that ends the run, a rank that begins and ends no plugin call for this time is killed, or for
  // 1.5 times as long as the run's longest call if that is longer; 0: never. A second signal kills the ranks at once.
  std::chrono::milliseconds stop_grace{10000};
  std::string unit = "step";             // what a rank finishes after such a signal
  std::chrono::milliseconds echo{1000};  // a second signal within this time is a copy, sent to group and process
  WatchdogLimits watchdog{};
  CgroupFiles cgroups{};
  bool may_restart = false;  // the ranks may start again after a failure
  bool is_restart = false;   // they have done so before
  Companion* companion = nullptr;
  // Called with the outcome before other launchers hear of it: they end then, and the program that has started them may
  // take the end of one as a reason to kill this one. Only in the head of several.
  std::function<void(const Outcome&)> before_others_end = {};
  NamedOutput named_output{};  // ranks that are processes, of those here

  // The ranks that this launcher starts.
  [[nodiscard]] RankRange ranks_here() const { return cluster != nullptr ? cluster->mine() : RankRange{0, world_size}; }
};

struct Outcome {
  int exit_code = 0;                                // 0; 1; 130 after SIGINT, 143 after SIGTERM
  std::string sentence;                             // the reason if it is not 0; may be empty
  std::optional<Shortage> shortage = std::nullopt;  // the run was refused because its plan does not fit
  bool has_begun = false;                           // with its work
  std::string numbers = {};                         // of ranks that have failed (numbers_of_ranks), as JSON
  bool again = false;                               // it failed after it had begun, and its ranks are to start again
  bool lost_head = false;                           // a member does not know how the run has ended, or whether it has
};

// What the loader has prepared.
struct Prepared {
  bool threads = false;                  // ranks are threads of one process
  std::vector<std::string> libraries{};  // files of the run's plugins
  RankFunction rank_function;            // empty: there is nothing to start
};
// The run is refused because its plan does not fit. Thrown by a Prepare.
class LacksMemory : public std::runtime_error {
 public:
  LacksMemory(const std::string& sentence, Shortage shortage)
      : std::runtime_error(sentence), shortage_(std::move(shortage)) {}
  [[nodiscard]] const Shortage& shortage() const { return shortage_; }

 private:
  Shortage shortage_;
};
// Runs in the loader, a child of this process: loads the plugins and prepares the run.
using Prepare = std::function<Prepared(LoaderRecord&)>;

// Starts the ranks and returns when every rank has ended. Call it before any thread exists. It never returns in the
// children. All ranks are children of this process, which runs no code of a plugin.
Outcome launch(const LaunchArgs& args, const Prepare& prepare, LoaderRecord& record);
// For plugins that this process has loaded.
Outcome launch(const LaunchArgs& args, const RankFunction& rank_function);

constexpr int kMaxRanks = 1024;

// Refuses a number of ranks whose processes alone would fill the memory. Otherwise the kernel would later kill some of them
// without giving a reason. The model and its state need further memory.
void require_memory_of_processes(int world_size, const ddh::FreeMemory& free);

// One line on stderr: "ddhost: <sentence>".
void print_sentence(const std::string& sentence);

}  // namespace ddhost
