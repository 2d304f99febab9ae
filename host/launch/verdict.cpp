// SPDX-License-Identifier: Apache-2.0
//
// launch/verdict.cpp: the first failure wins; a rank that only noticed a peer's end is not the cause.
#include "launch/verdict.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/terminal.hpp"
#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

struct Cause {
  int rank = -1;
  Progress::Failure failure;
};

// The earliest failure; a rank's own failure comes before one caused by a peer.
Cause first_cause(const Progress& progress, RankRange ranks) {
  Cause cause;
  for (int rank = ranks.first; rank < ranks.end(); ++rank) {
    const Progress::Failure failure = progress.failure(rank);
    if (failure.order == 0) continue;
    const bool better_kind = cause.failure.caused_by_peer && !failure.caused_by_peer;
    const bool same_kind = cause.failure.caused_by_peer == failure.caused_by_peer;
    if (cause.rank < 0 || better_kind || (same_kind && failure.order < cause.failure.order)) cause = {rank, failure};
  }
  return cause;
}

// Bad input fails on every rank in the same way, so the rank's number is left out.
bool all_say(const std::string& sentence, const Progress& progress, RankRange ranks) {
  int same = 0;
  for (int rank = ranks.first; rank < ranks.end(); ++rank) {
    const Progress::Failure failure = progress.failure(rank);
    if (failure.sentence == sentence) ++same;
    if (failure.order != 0 && !failure.caused_by_peer && failure.sentence != sentence) return false;
  }
  return same > 1 || ranks.count == 1;
}

bool are_all(const Progress& progress, RankRange ranks, bool (Progress::*what)(int) const) {
  if (ranks.count == 0) return false;
  for (int rank = ranks.first; rank < ranks.end(); ++rank)
    if (!(progress.*what)(rank)) return false;
  return true;
}

bool is_peers_fault(ddh_rc code) { return code == DDH_UNAVAILABLE || code == DDH_ABORTED || code == DDH_CANCELLED; }

}  // namespace

bool has_own_failure(const Progress& progress, RankRange ranks) {
  const Cause cause = first_cause(progress, ranks);
  return cause.rank >= 0 && !cause.failure.caused_by_peer;
}

Outcome verdict(const RunEnd& end, const Progress& progress, RankRange ranks) {
  Outcome outcome;
  if (end.failed)
    outcome = {1,
               end.noticed.empty() ? "a rank ended with an error and gave no reason; the run has ended" : end.noticed};
  const Cause cause = first_cause(progress, ranks);
  if (!end.death.empty()) {
    outcome = {1, end.death};
  } else if (cause.rank >= 0) {
    const bool alike = all_say(cause.failure.sentence, progress, ranks);
    outcome = {1, alike ? cause.failure.sentence : ddh::str("rank ", cause.rank, ": ", cause.failure.sentence)};
  }
  if (end.stop_signal == 0) return outcome;
  // Ranks that only noticed the end of others have not failed.
  if (end.death.empty() && !has_own_failure(progress, ranks))
    outcome.sentence = end.killed_by_signal ? "a second signal ended the ranks, some of them in the middle of a step"
                       : end.has_begun && end.killed_after_stop
                           ? "the ranks did not end by themselves in time and were killed"
                           : "";
  if (end.was_done && !end.failed && are_all(progress, ranks, &Progress::is_complete)) return outcome;
  outcome.exit_code = 128 + end.stop_signal;
  return outcome;
}

int run_seat(const RankFunction& rank_function, RankSeat& seat, Progress& progress) {
  const auto failed = [&](const std::string& sentence, bool caused_by_peer) {
    progress.set_failure(seat.rank, plain_text(sentence), caused_by_peer);
    return 1;
  };
  try {
    const int rc = rank_function(seat);
    if (rc == 0)
      progress.set_complete(seat.rank);
    else
      failed(ddh::str("ended with exit code ", rc, " at step ", progress.step(seat.rank)), false);
    return rc;
  } catch (const ddh::Error& error) {
    return failed(error.what(), is_peers_fault(error.code()));
  } catch (const std::exception& error) {
    return failed(sentence_of(error), false);
  } catch (...) {
    return failed("unexpected error of an unknown type", false);
  }
}

RankSeat make_seat(const LaunchArgs& args, int rank, Kv& kv, RankRecord& record, uint64_t run_id) {
  const auto nodes =
      args.cluster != nullptr ? args.cluster->nodes() : std::make_shared<Nodes>(args.world_size, args.ranks_per_node);
  return {rank, nodes, kv, record, run_id};
}

uint64_t make_run_id() {
  uint64_t id = 0;
  if (::getrandom(&id, sizeof id, 0) == static_cast<ssize_t>(sizeof id) && id != 0) return id;
  const auto now = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  return (now << 16) ^ static_cast<uint64_t>(::getpid());
}

// A plugin's text may hold control characters, which would change the terminal. A rank's progress line, and the ^C that the
// terminal has put there, are taken away.
void print_sentence(const std::string& sentence) {
  std::fprintf(stderr, "%sddhost: %s\n", can_redraw(STDERR_FILENO) ? "\r\033[K" : "", plain_text(sentence).c_str());
  std::fflush(stderr);
}

void note_stop(RunEnd& end, StopSignal signal, Progress& progress, const LaunchArgs& args, const std::string& before) {
  const auto now = std::chrono::steady_clock::now();
  if (end.stop_signal != 0) {  // a terminal sends each process one signal for a key, so that a second one is no copy
    const bool is_second_key = signal.from_terminal && end.is_from_terminal;
    end.killed_by_signal |= is_second_key || now - end.stopped_at >= args.echo;
    return;
  }
  end.stop_signal = signal.number;
  end.is_from_terminal = signal.from_terminal;
  end.stopped_at = now;
  end.has_begun = args.ranks_here().count == 0;  // then those of other hosts may have begun
  const RankRange ranks = args.ranks_here();
  for (int rank = ranks.first; rank < ranks.end(); ++rank) end.has_begun |= progress.has_begun(rank);
  end.was_done = are_all(progress, ranks, &Progress::is_done);
  progress.request_stop();
  if (args.cluster == nullptr) progress.name_last_step();           // else ranks agree with those of other hosts
  if (args.cluster != nullptr && !args.cluster->is_head()) return;  // the head says it
  int64_t step = 0;  // the last that a rank has begun; of several hosts nobody knows it yet
  for (int rank = ranks.first; rank < ranks.end() && args.cluster == nullptr; ++rank)
    step = std::max(step, progress.step(rank));
  const std::string come = ddh::str("signal ", signal.number, " (", ::strsignal(signal.number), ") has come",
                                    step > 0 && !end.was_done ? ddh::str(" in step ", step) : "");
  if (end.was_done)
    print_sentence(ddh::str(come, " after the last step: the run writes its results and ends; a second signal, or ",
                            "Ctrl-C, ends the ranks at once"));
  else if (end.has_begun)
    print_sentence(ddh::str(come, ": the run ends after the current ", args.unit,
                            "; a second signal, or Ctrl-C, ends the ranks at once"));
  else
    print_sentence(ddh::str(come, " before the first ", args.unit, ", while ", before,
                            ": the run ends at once, and nothing is lost"));
}

}  // namespace ddhost
