// SPDX-License-Identifier: Apache-2.0
//
// launch/verdict.hpp: how ranks end, and which one was the cause.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "launch/launch.hpp"
#include "launch/watchdog.hpp"

namespace ddhost {

// How a run came to its end, as the launcher saw it.
struct RunEnd {
  int stop_signal = 0;  // the first SIGINT, SIGTERM or SIGHUP; 0: none
  std::chrono::steady_clock::time_point stopped_at;
  bool killed_by_signal = false;   // a second one came
  bool killed_after_stop = false;  // ranks did not end in time
  std::string death;               // a rank died without a word, or hung, and no rank had failed before
  bool hung = false;               // the watchdog ended the run
  bool failed = false;             // any rank ended with something else than 0
};

Outcome verdict(const RunEnd& end, const Progress& progress, int world_size);

// Has a rank failed by itself, not because of another?
bool has_own_failure(const Progress& progress, int world_size);

// Runs the rank's function to its exit code. No exception leaves; its sentence goes to the progress page.
int run_seat(const RankFunction& rank_function, RankSeat& seat, Progress& progress);

// The place of a rank among simulated nodes.
RankSeat make_seat(const LaunchArgs& args, int rank, Kv& kv, RankRecord& record, uint64_t run_id);
uint64_t make_run_id();

// Says what a watchdog has seen; true where it ends the run, with the reason in end.death.
bool note_watchdog(RunEnd& end, Watchdog& watchdog);

// Notes a signal that ends runs; the ranks are to be killed where killed_by_signal is set then.
void note_stop(RunEnd& end, int signal, Progress& progress, std::chrono::milliseconds echo);

}  // namespace ddhost
