// SPDX-License-Identifier: Apache-2.0
//
// A signal that ends a run in which a rank stands still, before the first step, or in a step that is slow: the run ends in
// time, says why, and leaves nothing.
#include <chrono>
#include <filesystem>

#include "fixtures/harness/bad_run.hpp"
#include "fixtures/harness/processes.hpp"

using namespace ddhost::test;
using namespace std::chrono_literals;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

// A run of two ranks with a checkpoint after each step, which is signalled at a chosen moment.
class StoppedRun {
 public:
  StoppedRun(const Words& options, const std::string& at_load = "")
      : process_(words(options), [&] {
          setenv("MISBEHAVE_MARK", folder_.file("mark").c_str(), 1);
          if (!at_load.empty()) setenv("BAD_LOADING", at_load.c_str(), 1);
        }) {}

  // Waits until the run has that many rows of steps.
  void wait_for_rows(size_t count) {
    REQUIRE(soon([&] {
      const std::string text = read_text(folder_.file("run/metrics.jsonl"));
      return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) >= count;
    }));
  }
  // Waits until a plugin stands still.
  void wait_until_it_stands() {
    REQUIRE(soon([&] { return fs::exists(folder_.path() / "mark"); }));
    std::this_thread::sleep_for(200ms);  // from the mark to the fault itself
  }
  void signal(int number) {
    begin_ = Clock::now();
    descendants_ = descendants_of(process_.pid());
    REQUIRE(kill(process_.pid(), number) == 0);
  }
  // Waits for the end, and checks that no process and no partial file is left.
  int end() {
    const int code = process_.wait(30s);
    seconds_ = std::chrono::duration<double>(Clock::now() - begin_).count();
    CHECK(gone(descendants_));
    if (fs::exists(folder_.path() / "run"))
      for (const auto& entry : fs::recursive_directory_iterator(folder_.path() / "run")) {
        const std::string name = entry.path().filename().string();
        INFO(entry.path().string());
        CHECK_FALSE(name.starts_with("."));
        CHECK_FALSE(name.ends_with(".part"));
      }
    return code;
  }
  [[nodiscard]] std::string err() const { return process_.err(); }
  [[nodiscard]] double seconds() const { return seconds_; }
  [[nodiscard]] const TempFolder& folder() const { return folder_; }
  [[nodiscard]] pid_t pid() const { return process_.pid(); }

 private:
  [[nodiscard]] Words words(const Words& options) const {
    Words all = {"--nproc", "2",         "train.steps=100000", "run.quiet=true",     "run.dir=" + folder_.file("run"),
                 "--model", toy_model(), "checkpoint.every=1", "run.sample_tokens=0"};
    all.insert(all.end(), options.begin(), options.end());
    return all;
  }

  const TempFolder folder_;
  Process process_;
  std::vector<pid_t> descendants_;
  Clock::time_point begin_;
  double seconds_ = 0;
};

}  // namespace

TEST_CASE("SIGTERM while a rank stands still names it after launch.grace and leaves nothing", "[misbehaving][stop]") {
  const char* const comm = GENERATE("shm", "loop");
  const char* const how = GENERATE("loop", "hang", "stop");
  StoppedRun run(
      joined(bad_strategy("step", how, {"strategy.rank=1", "strategy.step=3"}), {"--comm", comm, "launch.grace=1.5"}));
  run.wait_until_it_stands();
  run.signal(SIGTERM);
  const int code = run.end();
  INFO(comm << " " << how << "\n" << run.err());
  CHECK(code == 143);
  CHECK(run.seconds() > 1.2);
  CHECK(run.seconds() < 10);
  CHECK_THAT(run.err(), Contains("rank 1 (") && Contains("in step of strategy 'bad'") &&
                            Contains("neither begun nor ended a plugin call") && Contains("launch.grace"));
  if (std::string(how) == "stop") CHECK_THAT(run.err(), Contains("stopped by a signal"));
  if (std::string(how) != "stop") CHECK_THAT(run.err(), !Contains("rank 0 ("));  // it waits for rank 1
}

TEST_CASE("SIGTERM while a model's data thread stands still names it", "[misbehaving][stop]") {
  StoppedRun run(joined(bad_model("batch_create", "loop", {"model.step=5"}), {"launch.grace=1"}));
  run.wait_for_rows(3);
  run.wait_until_it_stands();
  run.signal(SIGTERM);
  const int code = run.end();
  INFO(run.err());
  CHECK(code == 143);
  CHECK_THAT(run.err(), Contains("in batch_create of model 'bad_model'"));
}

TEST_CASE("a second SIGTERM ends a run whose rank stands still at once", "[misbehaving][stop]") {
  const char* const comm = GENERATE("shm", "loop");
  const char* const how = GENERATE("loop", "stop");
  StoppedRun run(
      joined(bad_strategy("step", how, {"strategy.rank=1", "strategy.step=3"}), {"--comm", comm, "launch.grace=60"}));
  run.wait_until_it_stands();
  run.signal(SIGTERM);
  std::this_thread::sleep_for(1200ms);  // a signal within 1 s is a copy of the first
  run.signal(SIGTERM);
  const int code = run.end();
  INFO(comm << " " << how << "\n" << run.err());
  CHECK(code == 143);
  CHECK(run.seconds() < 3);
  CHECK_THAT(run.err(), Contains("a second signal ended the ranks"));
}

TEST_CASE("a step that takes longer than launch.grace, as an earlier one did, ends and is saved",
          "[misbehaving][stop]") {
  StoppedRun run(joined(bad_strategy("step", "slow", {"strategy.rank=1"}), {"launch.grace=0.3"}));
  run.wait_for_rows(1);
  run.signal(SIGTERM);
  const int code = run.end();
  INFO(run.err());
  CHECK(code == 143);
  CHECK_THAT(run.err(), Contains("after the current step") && !Contains("were killed"));
  CHECK(fs::exists(run.folder().path() / "run/checkpoints/step-2"));
}

TEST_CASE("SIGTERM before the first step ends the run at once and says so", "[misbehaving][stop]") {
  const char* const comm = GENERATE("shm", "loop");
  const char* const call = GENERATE("attach", "materialize");
  StoppedRun run(joined(bad_strategy(call, "hang"), {"--comm", comm}));
  run.wait_until_it_stands();
  run.signal(SIGTERM);
  const int code = run.end();
  INFO(comm << " " << call << "\n" << run.err());
  CHECK(code == 143);
  CHECK(run.seconds() < 3);
  CHECK_THAT(run.err(), Contains("before the first step, while the ranks were being prepared") &&
                            Contains("the run ends at once") && !Contains("after the current step"));
  CHECK_FALSE(fs::exists(run.folder().path() / "run"));  // nothing is left
}

TEST_CASE("SIGTERM while a library is loaded ends the run at once and names the library", "[misbehaving][stop]") {
  const char* const how = GENERATE("hang", "loop", "stop");
  StoppedRun run({"--strategy", test_plugin("bad_loading")}, how);
  run.wait_until_it_stands();
  run.signal(SIGTERM);
  const int code = run.end();
  INFO(how << "\n" << run.err());
  CHECK(code == 143);
  CHECK(run.seconds() < 3);
  CHECK_THAT(run.err(), Contains("before the first step, while loading strategy") && Contains("bad_loading.so"));
}

TEST_CASE("launch.grace=0 waits for a rank that stands still until the second signal", "[misbehaving][stop]") {
  StoppedRun run(joined(bad_strategy("step", "loop", {"strategy.rank=1", "strategy.step=3"}), {"launch.grace=0"}));
  run.wait_until_it_stands();
  run.signal(SIGTERM);
  std::this_thread::sleep_for(1500ms);
  CHECK(kill(run.pid(), 0) == 0);
  CHECK_THAT(run.err(), !Contains("killed"));
  run.signal(SIGTERM);
  CHECK(run.end() == 143);
}
