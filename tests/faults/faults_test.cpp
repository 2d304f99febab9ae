// SPDX-License-Identifier: Apache-2.0
//
// A rank that dies, a launcher that dies, Ctrl-C: the run ends within seconds, says which rank, why and at which step, and
// leaves no process and no shared memory behind.
#include <catch2/catch.hpp>
#include <sstream>

#include "fixtures/harness/processes.hpp"

using namespace ddhost::test;
using namespace std::chrono_literals;

namespace {

// A run that would take minutes.
std::vector<std::string> long_run(const TempFolder& folder, const char* strategy) {
  return {"--model",
          toy_model(),
          "--strategy",
          strategy,
          "--nproc",
          "3",
          "train.steps=10000000",
          "model.layers=4",
          "run.quiet=true",
          "run.dir=" + folder.file("run")};
}

// Waits until the run has made some steps. Returns the ranks' processes in rank order.
std::vector<pid_t> wait_for_steps(const Process& process, const TempFolder& folder) {
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (std::chrono::steady_clock::now() < end) {
    if (read_text(folder.file("run/metrics.jsonl")).size() > 2000) return children_of(process.pid());
    std::this_thread::sleep_for(5ms);
  }
  return {};
}

size_t shared_memory_names() {
  size_t n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/dev/shm")) ++n;
  return n;
}

}  // namespace

TEST_CASE("a rank that is killed ends the run within seconds, named with its signal and step", "[faults]") {
  const char* const strategy = GENERATE("ddp", "zero1", "zero3");
  const TempFolder folder;
  const size_t names_before = shared_memory_names();
  Process process(long_run(folder, strategy));
  const std::vector<pid_t> ranks = wait_for_steps(process, folder);
  REQUIRE(ranks.size() == 3);
  REQUIRE(kill(ranks[1], SIGKILL) == 0);
  const auto begin = std::chrono::steady_clock::now();
  const int code = process.wait(20s);
  INFO(process.err());
  CHECK(std::chrono::steady_clock::now() - begin < 6s);
  CHECK(code == 1);
  CHECK_THAT(process.err(), Catch::Contains("rank 1") && Catch::Contains("signal 9") && Catch::Contains("step"));
  CHECK(gone(ranks));
  CHECK(shared_memory_names() == names_before);
}

// A handler in the middle of a compute kernel has left the heap corrupted.
TEST_CASE("no thread of a rank can be interrupted by SIGTERM, which a rank hands on to the launcher", "[faults]") {
  const TempFolder folder;
  Process process(long_run(folder, "zero2"));
  const std::vector<pid_t> ranks = wait_for_steps(process, folder);
  REQUIRE(ranks.size() == 3);
  for (const pid_t rank : ranks) {
    size_t threads = 0, open_ones = 0;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(rank) + "/task")) {
      const std::string status = read_text(thread.path().string() + "/status");
      const size_t at = status.find("SigBlk:");
      REQUIRE(at != std::string::npos);
      const uint64_t blocked = std::stoull(status.substr(at + 7, 20), nullptr, 16);
      const bool is_open = (blocked >> (SIGTERM - 1) & 1) == 0;
      ++threads;
      open_ones += is_open ? 1 : 0;
      if (thread.path().filename() == std::to_string(rank)) CHECK_FALSE(is_open);
    }
    CHECK(threads > 2);     // the main thread, that of the signal, data workers
    CHECK(open_ones == 1);  // the one that waits for the signal
  }
  REQUIRE(kill(ranks[1], SIGTERM) == 0);
  const int code = process.wait(20s);
  INFO(process.err());
  CHECK(code == 143);
  CHECK_THAT(process.err(),
             Catch::Contains(" has come in step ") && Catch::Contains(": the run ends after the current step"));
  CHECK(std::filesystem::exists(folder.file("run/checkpoints/latest")));
  CHECK(gone(ranks));
}

TEST_CASE("a rank that is stopped by a signal is ended with the others when one dies", "[faults]") {
  const TempFolder folder;
  Process process(long_run(folder, "zero1"));
  const std::vector<pid_t> ranks = wait_for_steps(process, folder);
  REQUIRE(ranks.size() == 3);
  REQUIRE(kill(ranks[2], SIGSTOP) == 0);
  REQUIRE(kill(ranks[0], SIGKILL) == 0);
  CHECK(process.wait(20s) == 1);
  CHECK_THAT(process.err(), Catch::Contains("rank 0"));
  CHECK(gone(ranks));
}

TEST_CASE("Ctrl-C ends all ranks after the current step, with exit code 130", "[faults]") {
  const TempFolder folder;
  Process process(long_run(folder, "zero3"));
  const std::vector<pid_t> ranks = wait_for_steps(process, folder);
  REQUIRE(ranks.size() == 3);
  REQUIRE(kill(-process.pid(), SIGINT) == 0);  // a terminal signals the whole group
  CHECK(process.wait(20s) == 130);
  CHECK(gone(ranks));
  const RunRecord record = read_run(folder.path() / "run");
  CHECK(record.summary.at("steps").get<int64_t>() >= record.steps.back().at("step").get<int64_t>());
}

// `timeout` and batch systems signal all processes. Once, ranks died within a step then, and the summary was lost.
TEST_CASE("SIGTERM to the program and to its whole group ends the run after the current step", "[faults]") {
  const TempFolder folder;
  Process process(long_run(folder, "zero3"));
  const std::vector<pid_t> ranks = wait_for_steps(process, folder);
  REQUIRE(ranks.size() == 3);
  REQUIRE(kill(process.pid(), SIGTERM) == 0);
  REQUIRE(kill(-process.pid(), SIGTERM) == 0);
  CHECK(process.wait(20s) == 143);
  CHECK_THAT(process.err(), !Catch::Contains("killed") && !Catch::Contains("a second signal ended"));
  CHECK(gone(ranks));
  const RunRecord record = read_run(folder.path() / "run");
  CHECK(record.summary.at("steps").get<int64_t>() >= record.steps.back().at("step").get<int64_t>());
}

TEST_CASE("ranks don't outlive a launcher that is killed", "[faults]") {
  const TempFolder folder;
  Process process(long_run(folder, "ddp"));
  const std::vector<pid_t> ranks = wait_for_steps(process, folder);
  REQUIRE(ranks.size() == 3);
  REQUIRE(kill(process.pid(), SIGKILL) == 0);
  CHECK(process.wait(20s) == 128 + SIGKILL);
  CHECK(gone(ranks));
}

TEST_CASE("ranks that are threads end on Ctrl-C like processes", "[faults]") {
  const TempFolder folder;
  std::vector<std::string> args = long_run(folder, "zero1");
  args.insert(args.end(), {"--comm", "loop"});
  Process process(args);
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (read_text(folder.file("run/metrics.jsonl")).size() < 2000 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(5ms);
  }
  REQUIRE(kill(process.pid(), SIGINT) == 0);
  CHECK(process.wait(20s) == 130);
}
