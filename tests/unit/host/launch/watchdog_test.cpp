// SPDX-License-Identifier: Apache-2.0
//
// The watchdog on records and times that the test makes: whom it names, how often, and when it ends the run.
#include "launch/watchdog.hpp"

#include <catch2/catch.hpp>

using namespace ddhost;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

// Three ranks with one strategy and one transport, looked at every 200 ms; notices after 1 s, the end after 10.
struct Ranks {
  Progress progress{3};
  Watchdog watchdog{progress, 3, {1000ms, 10'000ms}};
  Watchdog::Clock::time_point now{};
  uint8_t strategy = 0, comm = 0;
  Ranks() {
    for (int rank = 0; rank < 3; ++rank) {
      strategy = progress.add_plugin(rank, "strategy 'mine'");
      comm = progress.add_plugin(rank, "comm 'shm'");
    }
    const char* const names[] = {"h.0", "h.1"};
    progress.set_unit_names(names, 2);
  }
  void enter(int rank, PluginCall call, int32_t unit = -1) { progress.lane(rank).enter(strategy, call, unit); }
  void wait_for_others(int rank) {
    enter(rank, PluginCall::kStep);
    progress.lane(rank).enter(comm, PluginCall::kAllGather, -1);
  }
  // All notices of that much time, and the end.
  Watchdog::News pass(std::chrono::milliseconds time) {
    Watchdog::News all;
    for (const auto until = now + time; now < until && all.end.empty();) {
      now += 200ms;
      const Watchdog::News news = watchdog.look(now);
      all.notices.insert(all.notices.end(), news.notices.begin(), news.notices.end());
      all.end = news.end;
    }
    return all;
  }
};

}  // namespace

TEST_CASE("a long call is named after the limit, and again after twice the time", "[watchdog]") {
  Ranks ranks;
  ranks.enter(1, PluginCall::kAcquire, 1);
  ranks.wait_for_others(0);
  ranks.wait_for_others(2);
  const Watchdog::News news = ranks.pass(9000ms);
  REQUIRE(news.notices.size() == 4);  // 1, 2, 4, 8 s
  CHECK(news.notices[0] ==
        "rank 1 has been in acquire of unit 'h.1' of strategy 'mine' for 1 s; ranks 0, 2 wait for it in all_gather of "
        "comm 'shm' (in step of strategy 'mine')");
  CHECK(news.end.empty());
  CHECK_THAT(ranks.pass(3000ms).end, Contains("for 10 s") && Contains("run.watchdog_abort=10 s"));
}

TEST_CASE("calls that end in time are not named, however many there are", "[watchdog]") {
  Ranks ranks;
  for (int i = 0; i < 40; ++i) {
    ranks.enter(0, PluginCall::kStep);
    CHECK(ranks.pass(800ms).notices.empty());
    ranks.progress.lane(0).leave();
  }
}

TEST_CASE("preparing the run may take three times as long before it is named", "[watchdog]") {
  Ranks ranks;
  ranks.enter(0, PluginCall::kAttach);
  CHECK(ranks.pass(2800ms).notices.empty());
  CHECK(ranks.pass(800ms).notices.size() == 1);
}

TEST_CASE("ranks that all wait for one another are named, and ended", "[watchdog]") {
  Ranks ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.wait_for_others(rank);
  const Watchdog::News news = ranks.pass(1400ms);
  REQUIRE(news.notices.size() == 1);
  CHECK_THAT(news.notices[0], Contains("every rank waits for another one"));
  CHECK_THAT(ranks.pass(10'000ms).end, Contains("every rank waits for another one"));
}

TEST_CASE("ranks that wait for a rank in the host's code are reported, and not ended", "[watchdog]") {
  Ranks ranks;
  ranks.wait_for_others(0);
  ranks.wait_for_others(2);
  const Watchdog::News news = ranks.pass(30'000ms);
  REQUIRE_FALSE(news.notices.empty());
  CHECK_THAT(news.notices[0], Contains("it waits for rank 1, which is in the host's code"));
  CHECK(news.end.empty());
}

TEST_CASE("a thread that waits for other ranks beside the main one is not named", "[watchdog]") {
  Ranks ranks;
  for (const int rank : {0, 1}) {
    ranks.enter(rank, PluginCall::kBackward, 1);
    ranks.progress.lane(rank, RankThread::kComm).enter(ranks.comm, PluginCall::kReduceScatter, -1);
  }
  ranks.progress.lane(1).leave();
  ranks.wait_for_others(1);
  ranks.wait_for_others(2);
  const Watchdog::News news = ranks.pass(1800ms);
  REQUIRE(news.notices.size() == 1);
  CHECK_THAT(news.notices[0], Contains("rank 0 has been in backward of unit 'h.1' of strategy 'mine' for 1 s; "
                                       "ranks 1, 2 wait for it"));
}

TEST_CASE("a rank that is complete is not waited for, and one that is stopped is named", "[watchdog]") {
  Ranks ranks;
  ranks.progress.set_complete(0);
  ranks.progress.set_complete(2);
  ranks.watchdog.set_state(1, Watchdog::RankState::kStopped);
  const Watchdog::News news = ranks.pass(1400ms);
  REQUIRE(news.notices.size() == 1);
  CHECK_THAT(news.notices[0], Contains("rank 1 is stopped by a signal, for 1 s"));
}

TEST_CASE("time in which the launcher itself was stopped does not count", "[watchdog]") {
  Ranks ranks;
  ranks.enter(0, PluginCall::kStep);
  CHECK(ranks.pass(400ms).notices.empty());
  ranks.now += 3600s;
  const Watchdog::News news = ranks.pass(400ms);
  CHECK(news.notices.empty());
  CHECK(news.end.empty());
  CHECK(ranks.pass(600ms).notices.size() == 1);
}

TEST_CASE("a watchdog that is off sees nothing", "[watchdog]") {
  Progress progress(1);
  Watchdog watchdog(progress, 1, {0ms, 10ms});
  progress.lane(0).enter(0, PluginCall::kStep, -1);
  CHECK_FALSE(watchdog.interval());
  CHECK(watchdog.look(Watchdog::Clock::time_point(1h)).end.empty());
}
