// SPDX-License-Identifier: Apache-2.0
//
// Ranks that stand still after a signal, on records and times that the test makes.
#include "launch/watchdog.hpp"

#include <catch2/catch.hpp>

using namespace ddhost;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

// Two ranks, looked at every 100 ms; 1 s of grace.
struct StandingRanks {
  Progress progress{2};
  Standstill standstill{progress, 2, 1000ms};
  Standstill::Clock::time_point now{};
  std::optional<Standstill::Clock::time_point> stopped_at;
  uint8_t strategy = 0, comm = 0;
  StandingRanks() {
    for (int rank = 0; rank < 2; ++rank) {
      strategy = progress.add_plugin(rank, "strategy 'mine'");
      comm = progress.add_plugin(rank, "comm 'shm'");
    }
  }
  void enter(int rank, PluginCall call, RankThread thread = RankThread::kMain) {
    progress.lane(rank, thread).enter(strategy, call, -1);
  }
  void leave(int rank) { progress.lane(rank).leave(); }
  void wait_for_others(int rank) {
    enter(rank, PluginCall::kStep);
    progress.lane(rank).enter(comm, PluginCall::kAllGather, -1);
  }
  void signal() { stopped_at = now; }
  // What is said in that much time; "" if nothing.
  std::string pass(std::chrono::milliseconds time) {
    for (const auto until = now + time; now < until;) {
      now += 100ms;
      if (std::string said = standstill.look(now, stopped_at); !said.empty()) return said;
    }
    return "";
  }
};

}  // namespace

TEST_CASE("a call that does not end is named after the grace, which begins with the signal", "[standstill]") {
  StandingRanks ranks;
  ranks.enter(1, PluginCall::kStep);
  ranks.wait_for_others(0);
  CHECK(ranks.pass(60s).empty());  // no signal, nothing to end
  ranks.signal();
  CHECK(ranks.pass(900ms).empty());
  const std::string said = ranks.pass(300ms);
  CHECK_THAT(said, Catch::StartsWith("rank 1 (in step of strategy 'mine') has neither begun nor ended a plugin call "
                                     "for 1 s after the signal, so the ranks were killed; raise launch.grace (1 s)"));
  CHECK_THAT(said, !Contains("rank 0"));
}

TEST_CASE("a rank that begins or ends calls goes on, also within one long call", "[standstill]") {
  StandingRanks ranks;
  ranks.signal();
  ranks.enter(0, PluginCall::kStep);
  for (int i = 0; i < 20; ++i) {
    ranks.progress.lane(0).enter(ranks.comm, PluginCall::kCopy, -1);
    CHECK(ranks.pass(500ms).empty());
    ranks.leave(0);
    CHECK(ranks.pass(500ms).empty());
  }
  CHECK_THAT(ranks.pass(2s), Contains("rank 0 (in step of strategy 'mine')"));
}

TEST_CASE("a call may take half as long again as the longest one of the run", "[standstill]") {
  StandingRanks ranks;
  ranks.enter(0, PluginCall::kStep);
  CHECK(ranks.pass(7s).empty());
  ranks.leave(0);
  CHECK(ranks.pass(200ms).empty());
  ranks.enter(0, PluginCall::kStep);
  ranks.signal();
  CHECK(ranks.pass(10400ms).empty());
  CHECK_THAT(ranks.pass(500ms), Contains("rank 0 (in step of strategy 'mine')") && Contains("launch.grace (1 s") &&
                                    Contains("longest call of 7 s"));
}

TEST_CASE("neither a call before the first step nor the wait for another rank is a longest call", "[standstill]") {
  StandingRanks ranks;
  ranks.enter(0, PluginCall::kMaterialize);
  CHECK(ranks.pass(60s).empty());
  ranks.leave(0);
  ranks.wait_for_others(0);
  CHECK(ranks.pass(60s).empty());
  ranks.leave(0);
  ranks.leave(0);
  ranks.enter(0, PluginCall::kReduceScatter, RankThread::kComm);
  CHECK(ranks.pass(60s).empty());
  ranks.progress.lane(0, RankThread::kComm).leave();
  ranks.enter(0, PluginCall::kStep);
  CHECK(ranks.pass(200ms).empty());
  ranks.signal();
  CHECK_THAT(ranks.pass(1500ms), Contains("rank 0 (in step of strategy 'mine')") && !Contains("longest call"));
}

TEST_CASE("a rank that a signal has stopped is named wherever it is, and its pause is not the length of a call",
          "[standstill]") {
  StandingRanks ranks;
  ranks.enter(0, PluginCall::kStep);
  ranks.standstill.set_state(0, Watchdog::RankState::kStopped, ranks.now);
  CHECK(ranks.pass(20s).empty());
  ranks.standstill.set_state(0, Watchdog::RankState::kRunning, ranks.now);
  CHECK(ranks.pass(200ms).empty());
  ranks.leave(0);
  ranks.signal();
  ranks.standstill.set_state(0, Watchdog::RankState::kStopped, ranks.now);
  CHECK_THAT(ranks.pass(1500ms), Contains("rank 0 (stopped by a signal)") && Contains("for 1 s"));
}

TEST_CASE("a rank in the host's code, and ranks that wait for it, are left alone", "[standstill]") {
  StandingRanks ranks;
  ranks.wait_for_others(0);
  ranks.signal();
  CHECK(ranks.pass(60s).empty());
  ranks.enter(1, PluginCall::kBatchCreate, RankThread::kData);  // it may wait for its data thread
  CHECK_THAT(ranks.pass(2s), Contains("rank 1 (in batch_create of strategy 'mine')"));
}

TEST_CASE("ranks that all wait for one another are named, and an ended one is not waited for", "[standstill]") {
  StandingRanks ranks;
  ranks.wait_for_others(0);
  ranks.signal();
  const bool ends = GENERATE(true, false);
  if (ends)
    ranks.progress.set_complete(1);
  else
    ranks.wait_for_others(1);
  const std::string said = ranks.pass(2s);
  CHECK_THAT(said, Contains("rank 0 (waiting in all_gather of comm 'shm'"));
  CHECK((said.find("rank 1") == std::string::npos) == ends);
}

TEST_CASE("time in which the launcher was stopped does not count, and a grace of 0 never ends", "[standstill]") {
  StandingRanks ranks;
  ranks.enter(0, PluginCall::kStep);
  CHECK(ranks.pass(200ms).empty());
  ranks.signal();
  CHECK(ranks.pass(200ms).empty());
  ranks.now += 3600s;
  CHECK(ranks.pass(400ms).empty());

  Standstill never(ranks.progress, 2, 0ms);
  CHECK_FALSE(never.interval());
  CHECK(never.look(ranks.now + 9h, ranks.now).empty());
}
