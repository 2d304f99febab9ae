// SPDX-License-Identifier: Apache-2.0
//
// launch/verdict.hpp: determines how a run ended, and which rank was the cause.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "launch/launch.hpp"
#include "launch/watchdog.hpp"

namespace ddhost {

// The end of a run, as the launcher observed it.
struct RunEnd {
  int stop_signal = 0;            // the first SIGINT, SIGTERM or SIGHUP; 0: none
  bool is_from_terminal = false;  // that signal
  std::chrono::steady_clock::time_point stopped_at;
  bool has_begun = true;           // when it came; otherwise there was nothing to finish
  bool was_done = false;           // when it came, all steps were done
  bool killed_by_signal = false;   // a second one came
  bool killed_after_stop = false;  // ranks did not end in time
  std::string death;               // a process died without a message, or stood still, and no rank had failed before
  bool failed = false;             // a rank ended with a non-zero exit code, or the launcher has ended the run
  std::string noticed;             // what ranks of other hosts said that only noticed the end of others
};

Outcome verdict(const RunEnd& end, const Progress& progress, RankRange ranks);

// Whether a rank has failed by itself, not because of another one.
bool has_own_failure(const Progress& progress, RankRange ranks);

// Runs the rank's function and returns its exit code. The message of an exception is written to the progress page.
int run_seat(const RankFunction& rank_function, RankSeat& seat, Progress& progress);

// What a rank gets from the launcher.
RankSeat make_seat(const LaunchArgs& args, int rank, Kv& kv, RankRecord& record, uint64_t run_id);
uint64_t make_run_id();

struct StopSignal {
  int number;
  bool from_terminal;  // a key, such as Ctrl-C
};
// Records a signal that ends runs. If this sets killed_by_signal, or if no rank has begun, the ranks must be killed.
// `before`: what is under way before the first step, "the ranks were being prepared".
void note_stop(RunEnd& end, StopSignal signal, Progress& progress, const LaunchArgs& args, const std::string& before);

}  // namespace ddhost
