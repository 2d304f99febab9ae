// SPDX-License-Identifier: Apache-2.0
//
// Starting ranks as processes and as threads, and handling their end.
#include "launch/launch.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "ddh/sdk/plugin.hpp"
#include "fixtures/harness/throws.hpp"
#include "launch/progress.hpp"

using namespace ddhost;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

// Numbers that all ranks see, also as processes.
struct Shared {
  std::atomic<int> sum{0};
  std::atomic<int> pids[8] = {};
};
class SharedPage {
 public:
  SharedPage() : at_(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    new (at_) Shared;
  }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  ~SharedPage() { munmap(at_, sizeof(Shared)); }
  Shared* operator->() const { return static_cast<Shared*>(at_); }

 private:
  void* at_;
};

LaunchArgs ranks(int n, bool threads = false) {
  LaunchArgs args;
  args.world_size = n;
  args.threads = threads;
  args.failure_grace = 300ms;
  args.stop_grace = 500ms;
  return args;
}

bool alive(int pid) { return kill(pid, 0) == 0; }

bool soon(const std::function<bool()>& condition) {
  for (int i = 0; i < 500; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

int sleep_for_ever(RankSeat&) {
  while (true) std::this_thread::sleep_for(10ms);
}

}  // namespace

TEST_CASE("every rank runs once with its own rank number", "[launch]") {
  for (const bool threads : {false, true}) {
    const SharedPage shared;
    LaunchArgs args = ranks(4, threads);
    args.ranks_per_node = 2;
    const Outcome end = launch(args, [&](RankSeat& seat) {
      const bool right = seat.world_size() == 4 && seat.node() == seat.rank / 2 && seat.local_rank() == seat.rank % 2;
      shared->sum += right ? 1 << (4 * seat.rank) : 0;
      return 0;
    });
    CHECK(end.exit_code == 0);
    CHECK(end.sentence.empty());
    CHECK(shared->sum == 0x1111);
  }
}

TEST_CASE("ranks meet through the store", "[launch]") {
  for (const bool threads : {false, true}) {
    const Outcome end = launch(ranks(3, threads), [](RankSeat& seat) {
      seat.kv.set(ddh::str("rank/", seat.rank), ddh::str(seat.run_id));
      for (int peer = 0; peer < seat.world_size(); ++peer)
        if (seat.kv.get(ddh::str("rank/", peer), 5s) != ddh::str(seat.run_id)) return 1;
      return 0;
    });
    CHECK(end.exit_code == 0);
  }
}

TEST_CASE("a killed rank ends the run with rank, process, signal and step", "[launch]") {
  const auto begin = Clock::now();
  const SharedPage shared;
  const Outcome end = launch(ranks(3), [&](RankSeat& seat) {
    shared->pids[seat.rank] = getpid();
    seat.record.set_step(57);
    if (seat.rank == 1) raise(SIGKILL);
    return sleep_for_ever(seat);
  });
  CHECK(end.exit_code == 1);
  CHECK(end.sentence ==
        ddh::str("rank 1 (pid ", shared->pids[1].load(),
                 ") was killed by signal 9 (Killed) at step 57; the run has ended; if the system ran out of memory, "
                 "use fewer ranks or a smaller batch"));
  CHECK(Clock::now() - begin < 3s);
  for (int rank = 0; rank < 3; ++rank)
    if (shared->pids[rank] != 0) CHECK_FALSE(alive(shared->pids[rank]));
}

TEST_CASE("the run reports the first failure, not the failures that it caused", "[launch]") {
  for (const bool threads : {false, true}) {
    const Outcome end = launch(ranks(3, threads), [](RankSeat& seat) -> int {
      if (seat.rank == 2) ddh::fail(DDH_DATA_LOSS, "the data is torn");
      if (seat.rank == 0) ddh::fail(DDH_UNAVAILABLE, "rank 2 is gone");
      static_cast<void>(seat.kv.get("never", 20s));  // ended by the launcher
      return 0;
    });
    CHECK(end.exit_code == 1);
    CHECK(end.sentence == "rank 2: the data is torn");
  }
}

TEST_CASE("an error that is the same on every rank is printed once, without a rank", "[launch]") {
  for (const bool threads : {false, true}) {
    const Outcome end = launch(ranks(3, threads),
                               [](RankSeat&) -> int { ddh::fail(DDH_NOT_FOUND, "no file 'x.txt'; give data.path"); });
    CHECK(end.sentence == "no file 'x.txt'; give data.path");
  }
}

TEST_CASE("a peer's end is reported when nothing else is known", "[launch]") {
  const Outcome end =
      launch(ranks(2), [](RankSeat& seat) -> int { ddh::fail(DDH_UNAVAILABLE, "rank ", 1 - seat.rank, " is gone"); });
  CHECK(end.exit_code == 1);
  CHECK_THAT(end.sentence, Catch::Contains("is gone"));
}

TEST_CASE("a rank that ends with an exit code and no reason is named", "[launch]") {
  const Outcome end = launch(ranks(2), [](RankSeat& seat) -> int {
    if (seat.rank == 1) _exit(7);
    return sleep_for_ever(seat);
  });
  CHECK_THAT(end.sentence, Catch::Contains("rank 1") && Catch::Contains("exit code 7"));
}

TEST_CASE("a rank that a signal ends is reported with the calls of all its threads", "[launch]") {
  const Outcome end = launch(ranks(1), [](RankSeat& seat) -> int {
    const uint8_t model = seat.record.add_plugin("model 'mine'"), comm = seat.record.add_plugin("comm 'wild'");
    seat.record.lane(RankThread::kMain).enter(model, PluginCall::kBackward, -1);
    seat.record.lane(RankThread::kComm).enter(comm, PluginCall::kReduceScatter, -1);
    kill(getpid(), SIGKILL);
    return sleep_for_ever(seat);
  });
  CHECK_THAT(end.sentence,
             Catch::Contains("in backward of model 'mine', its transport thread in reduce_scatter of comm 'wild'"));
}

TEST_CASE("exceptions of other types become error messages too", "[launch]") {
  const Outcome end = launch(ranks(1), [](RankSeat&) -> int { throw std::logic_error("upside down"); });
  CHECK(end.exit_code == 1);
  CHECK_THAT(end.sentence, Catch::Contains("upside down"));
}

TEST_CASE("an interrupt lets the ranks finish their step and ends with 130", "[launch]") {
  for (const bool threads : {false, true}) {
    const SharedPage shared;
    const pid_t launcher = getpid();
    const Outcome end = launch(ranks(2, threads), [&](RankSeat& seat) {
      seat.record.set_step(1);
      if (seat.rank == 0) kill(launcher, SIGINT);
      while (!seat.record.stop_requested()) std::this_thread::sleep_for(1ms);
      shared->sum += 1;
      return 0;
    });
    CHECK(end.exit_code == 130);
    CHECK(end.sentence.empty());
    CHECK(shared->sum == 2);
  }
}

TEST_CASE("ranks that begin and end no call after an interrupt are named and killed", "[launch]") {
  for (const bool threads : {false, true}) {
    const auto begin = Clock::now();
    const pid_t launcher = getpid();
    const Outcome end = launch(ranks(2, threads), [&](RankSeat& seat) {
      seat.record.set_step(1);
      const uint8_t plugin = seat.record.add_plugin("strategy 'deaf'");
      if (seat.rank == 1) seat.record.lane(RankThread::kMain).enter(plugin, PluginCall::kStep, -1);
      if (seat.rank == 0) kill(launcher, SIGTERM);
      return sleep_for_ever(seat);
    });
    CHECK(end.exit_code == 143);
    CHECK_THAT(end.sentence, Catch::Contains("rank 1 (in step of strategy 'deaf')") && Catch::Contains("killed"));
    CHECK_THAT(end.sentence, !Catch::Contains("rank 0"));  // it is in no call, so nothing is known about it
    CHECK(Clock::now() - begin >= 500ms);
    CHECK(Clock::now() - begin < 5s);
  }
}

TEST_CASE("a rank that fails or dies after an interrupt is reported, also where another one must be killed",
          "[launch]") {
  for (const bool dies : {false, true}) {
    const pid_t launcher = getpid();
    LaunchArgs args = ranks(2);
    args.stop_grace = 60s;
    const Outcome end = launch(args, [&](RankSeat& seat) -> int {
      seat.record.set_step(1);
      if (seat.rank == 1) return sleep_for_ever(seat);
      kill(launcher, SIGTERM);
      while (!seat.record.stop_requested()) std::this_thread::sleep_for(1ms);
      if (dies) raise(SIGKILL);
      ddh::fail(DDH_DATA_LOSS, "the checkpoint could not be saved");
    });
    CHECK(end.exit_code == 143);
    CHECK_THAT(end.sentence, Catch::StartsWith(dies ? "rank 0 (pid " : "rank 0: the checkpoint could not be saved"));
  }
}

TEST_CASE("a rank that failed before an interrupt is reported", "[launch]") {
  const pid_t launcher = getpid();
  LaunchArgs args = ranks(2);
  args.failure_grace = 60s;
  const Outcome end = launch(args, [&](RankSeat& seat) -> int {
    if (seat.rank == 0) ddh::fail(DDH_RESOURCE_EXHAUSTED, "there is no memory");
    std::this_thread::sleep_for(300ms);
    kill(launcher, SIGTERM);
    return sleep_for_ever(seat);
  });
  CHECK(end.exit_code == 143);
  CHECK_THAT(end.sentence, Catch::Contains("there is no memory"));
}

TEST_CASE("an interrupt after the last step does not make a complete run fail", "[launch]") {
  for (const bool threads : {false, true}) {
    const pid_t launcher = getpid();
    const Outcome end = launch(ranks(2, threads), [&](RankSeat& seat) {
      seat.record.set_step(1);
      seat.record.set_done();
      std::this_thread::sleep_for(100ms);  // until both have
      if (seat.rank == 0) kill(launcher, SIGTERM);
      while (!seat.record.stop_requested()) std::this_thread::sleep_for(1ms);
      return 0;
    });
    CHECK(end.exit_code == 0);
    CHECK(end.sentence.empty());
  }
}

TEST_CASE("an interrupt before any rank has begun ends the run at once", "[launch]") {
  for (const bool threads : {false, true}) {
    LaunchArgs args = ranks(2, threads);
    args.stop_grace = 60s;
    const auto begin = Clock::now();
    const pid_t launcher = getpid();
    const Outcome end = launch(args, [&](RankSeat& seat) {
      if (seat.rank == 0) kill(launcher, SIGTERM);
      return sleep_for_ever(seat);
    });
    CHECK(end.exit_code == 143);
    CHECK(end.sentence.empty());
    CHECK(Clock::now() - begin < 5s);
  }
}

TEST_CASE("a second interrupt ends the ranks at once", "[launch]") {
  LaunchArgs args = ranks(2);
  args.stop_grace = 60s;
  args.echo = 0ms;
  const auto begin = Clock::now();
  const pid_t launcher = getpid();
  const Outcome end = launch(args, [&](RankSeat& seat) {
    seat.record.set_step(1);
    if (seat.rank == 0) {
      kill(launcher, SIGINT);
      while (!seat.record.stop_requested()) std::this_thread::sleep_for(1ms);
      kill(launcher, SIGINT);
    }
    return sleep_for_ever(seat);
  });
  CHECK(end.exit_code == 130);
  CHECK_THAT(end.sentence, Catch::Contains("a second signal"));
  CHECK(Clock::now() - begin < 10s);
}

// `timeout` and batch systems signal the process and its group: runs lost their last step and their summary.
TEST_CASE("a signal that reaches the launcher twice and every rank counts once", "[launch]") {
  for (const bool threads : {false, true}) {
    const SharedPage shared;
    const pid_t launcher = getpid();
    const Outcome end = launch(ranks(2, threads), [&](RankSeat& seat) {
      seat.record.set_step(1);
      if (seat.rank == 0)
        for (int i = 0; i < 2; ++i) kill(launcher, SIGTERM);
      if (!threads) raise(SIGTERM);
      while (!seat.record.stop_requested()) std::this_thread::sleep_for(1ms);
      std::this_thread::sleep_for(50ms);
      shared->sum += 1;
      return 0;
    });
    CHECK(end.exit_code == 143);
    CHECK(end.sentence.empty());
    CHECK(shared->sum == 2);
  }
}

TEST_CASE("a signal that a rank passes on late does not count as a second one", "[launch]") {
  LaunchArgs args = ranks(2);
  args.stop_grace = 60s;
  args.echo = 0ms;
  const pid_t launcher = getpid();
  const Outcome end = launch(args, [&](RankSeat& seat) {
    seat.record.set_step(1);
    if (seat.rank == 0) kill(launcher, SIGTERM);
    while (!seat.record.stop_requested()) std::this_thread::sleep_for(1ms);
    raise(SIGTERM);
    std::this_thread::sleep_for(100ms);
    return 0;
  });
  CHECK(end.exit_code == 143);
  CHECK(end.sentence.empty());
}

TEST_CASE("the ranks of a killed launcher are killed", "[launch]") {
  const SharedPage shared;
  const pid_t launcher = fork();
  if (launcher == 0) {
    launch(ranks(2), [&](RankSeat& seat) {
      shared->pids[seat.rank] = getpid();
      return sleep_for_ever(seat);
    });
    _exit(0);
  }
  REQUIRE(soon([&] { return shared->pids[0] != 0 && shared->pids[1] != 0; }));
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  // The orphans' parent may be slow to collect them: dead is enough.
  const auto gone = [](int pid) {
    if (!alive(pid)) return true;
    const std::string stat = "/proc/" + std::to_string(pid) + "/stat";
    char state = '?';
    if (FILE* file = fopen(stat.c_str(), "r")) {
      if (fscanf(file, "%*d %*s %c", &state) != 1) state = '?';
      fclose(file);
    }
    return state == 'Z';
  };
  CHECK(soon([&] { return gone(shared->pids[0]) && gone(shared->pids[1]); }));
}

TEST_CASE("threads that don't end after a failure are killed with their process", "[launch]") {
  const Outcome end = launch(ranks(2, true), [](RankSeat& seat) -> int {
    if (seat.rank == 0) ddh::fail(DDH_INTERNAL, "broken");
    return sleep_for_ever(seat);
  });
  CHECK(end.exit_code == 1);
  CHECK(end.sentence == "rank 0: broken");
}

TEST_CASE("a rank that ends the process of all ranks without a word is reported with what every rank did", "[launch]") {
  const Outcome end = launch(ranks(2, true), [](RankSeat& seat) -> int {
    seat.record.set_step(3);
    const uint8_t plugin = seat.record.add_plugin("strategy 'rude'");
    if (seat.rank == 0) return sleep_for_ever(seat);
    std::this_thread::sleep_for(200ms);
    seat.record.lane(RankThread::kMain).enter(plugin, PluginCall::kStep, -1);
    _exit(0);
  });
  CHECK(end.exit_code == 1);
  CHECK_THAT(end.sentence, Catch::Contains("ended without finishing the run (exit code 0) while rank 0 was in the "
                                           "host's code, rank 1 was in step of strategy 'rude' at step 3"));
}

TEST_CASE("a loader that ends, dies or is refused gives the reason, and starts no rank", "[launch]") {
  const auto outcome_of = [](const Prepare& prepare) {
    LoaderRecord record;
    const Outcome end = launch(ranks(2), prepare, record);
    CHECK(end.exit_code == 1);
    return end.sentence;
  };
  const auto begin_load = [](LoaderRecord& record) {
    record.begin_load("loading model 'a'");
    record.end_load();
    record.begin_load("loading strategy 'b'");
  };
  CHECK_THAT(outcome_of([&](LoaderRecord& record) -> Prepared {
               begin_load(record);
               _exit(0);
             }),
             Catch::Contains("ended with exit code 0 while loading strategy 'b'") && Catch::Contains("fix it"));
  CHECK_THAT(outcome_of([&](LoaderRecord& record) -> Prepared {
               begin_load(record);
               record.end_load();
               _exit(0);
             }),
             Catch::Contains("exit code 0 before the ranks were started") &&
                 Catch::Contains("(before: loading model 'a', loading strategy 'b')"));
  CHECK_THAT(outcome_of([&](LoaderRecord& record) -> Prepared {
               begin_load(record);
               std::exit(0);
             }),
             Catch::StartsWith("exit() was called while loading strategy 'b'"));
  CHECK_THAT(outcome_of([&](LoaderRecord& record) -> Prepared {
               begin_load(record);
               kill(getpid(), SIGKILL);
               return {};
             }),
             Catch::Contains("was killed by signal 9 (Killed) while loading strategy 'b'") &&
                 !Catch::Contains("fix"));  // nobody knows who sent it
  CHECK(outcome_of([](LoaderRecord&) -> Prepared { ddh::fail(DDH_NOT_FOUND, "there is no model 'c'"); }) ==
        "there is no model 'c'");
}

TEST_CASE("a run that needs no ranks ends well", "[launch]") {
  LoaderRecord record;
  const Outcome end = launch(
      ranks(2), [](LoaderRecord&) { return Prepared{}; }, record);
  CHECK(end.exit_code == 0);
  CHECK(end.sentence.empty());
}

TEST_CASE("the ranks are children of the launcher", "[launch]") {
  const SharedPage shared;
  const pid_t launcher = getpid();
  const Outcome end = launch(ranks(3), [&](RankSeat&) {
    shared->sum += getppid() == launcher ? 1 : 0;
    return 0;
  });
  CHECK(end.exit_code == 0);
  CHECK(shared->sum == 3);
}

TEST_CASE("an interrupt does not end the ranks directly", "[launch]") {
  const Outcome end = launch(ranks(2), [](RankSeat&) {
    raise(SIGINT);
    return 0;
  });
  CHECK(end.exit_code == 0);
}

TEST_CASE("a long sentence of a rank loses its middle, not its begin and its cure", "[launch]") {
  const Outcome end = launch(ranks(1), [](RankSeat&) -> int {
    ddh::fail(DDH_INTERNAL, "the file '", std::string(10000, 'w'), "' is damaged; get it again");
  });
  CHECK(end.sentence.size() < 2000);
  CHECK_THAT(end.sentence, Catch::StartsWith("the file 'w") && Catch::Contains(" bytes left out] ") &&
                               Catch::EndsWith("is damaged; get it again"));
}

TEST_CASE("a world whose processes would fill the memory is refused", "[launch]") {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  CHECK_THAT(
      ddhost::test::sentence_of([] {
        require_memory_of_processes(1000, {23 * kGiB, "the machine"});
      }),
      Catch::Contains("1000 ranks need more than 32000 MiB") && Catch::Contains("the machine has 23552 MiB left"));
  CHECK(ddhost::test::sentence_of([] { require_memory_of_processes(8, {kGiB, "the machine"}); }).empty());
}

TEST_CASE("the launcher names the last step that a rank has begun, and no rank begins a later one") {
  Progress progress(3);
  CHECK(progress.last_step_before(0, 5) == RankRecord::kNoStop);  // it may begin step 5
  CHECK(progress.last_step_before(1, 4) == RankRecord::kNoStop);
  progress.request_stop();
  progress.name_last_step();
  CHECK(progress.last_step_before(0, 6) == 5);
  CHECK(progress.last_step_before(1, 5) == 5);
  CHECK(progress.last_step_before(2, 2) == 5);  // it was slow, and does the steps that the others have begun
}

TEST_CASE("ranks that are told the last step while they train all end after it") {
  constexpr int kRanks = 3;
  Progress progress(kRanks);
  std::array<int64_t, kRanks> ended{};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] {
      int64_t step = 1;
      while (progress.last_step_before(rank, step + 1) > step) ++step;
      ended[static_cast<size_t>(rank)] = step;
    });
  progress.request_stop();
  progress.name_last_step();
  for (std::thread& rank : ranks) rank.join();
  CHECK(ended[1] == ended[0]);
  CHECK(ended[2] == ended[0]);
}
