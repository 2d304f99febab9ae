// SPDX-License-Identifier: Apache-2.0
//
// What happens to the rows of every monitor, shipped or from outside, when a run is started again in its folder: they are
// kept, or the run is refused.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>

#include "cli/checkpoint_runs.hpp"
#include "fixtures/harness/built.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/listed.hpp"

using namespace ddhost::test;
namespace fs = std::filesystem;

namespace {

Said train(const TempFolder& folder, const std::string& monitor, Words more = {}) {
  more.insert(more.begin(), {"--monitor", monitor, "--model", toy_model(), "--nproc", "2", "train.steps=6",
                             "train.eval_every=2", "train.eval_batches=1", "run.dir=" + folder.file("run")});
  return call_ddhost(more, std::chrono::seconds(60));
}

// Each monitor that the program ships, two from outside, of which one writes no file, and none.
std::string any_monitor() {
  return GENERATE(from_range(
      joined(listed_plugins("monitor", "jsonl"), {test_plugin("best_loss"), test_plugin("bad_monitor"), "[]"})));
}

// The columns of metrics.csv and lines of other texts that do not depend on time.
std::string steps_of(const TempFolder& folder, const std::string& monitor) {
  if (monitor == "jsonl") return rows_of(folder.path() / "run");
  if (monitor != "csv") return read_text(folder.file("run/best_loss.txt"));
  std::istringstream lines(read_text(folder.file("run/metrics.csv")));
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const size_t loss = line.find(',', line.find(',') + 1);
    out += line.substr(0, loss) + "\n";
  }
  return out;
}

// Files of monitors hold what they held. `events`: how the names of files of events begin.
void check_rows_are_kept(const TempFolder& folder, const std::map<std::string, std::string>& before,
                         const std::string& events) {
  const std::map<std::string, std::string> after = contents_of(folder.path() / "run");
  for (const auto& [path, text] : before)
    if (path.find("/run/metrics") != std::string::npos || path.find(events) != std::string::npos ||
        path.find("/wandb/") != std::string::npos || path.find("best_loss") != std::string::npos) {
      INFO(path);
      CHECK(after.contains(path));
      CHECK(after.at(path) == text);
    }
}

}  // namespace

TEST_CASE("a finished run without checkpoints is not started again by --resume auto", "[cli]") {
  const std::string monitor = any_monitor();
  const TempFolder folder;
  INFO(monitor);
  REQUIRE(train(folder, monitor).code == 0);
  const std::map<std::string, std::string> before = contents_of(folder.path() / "run");
  const Said again = train(folder, monitor, {"--resume", "auto", "--strategy", "zero3"});
  INFO(again.err);
  CHECK(again.code == 1);
  CHECK_THAT(again.err, Catch::Contains("holds a run without checkpoints"));
  CHECK(contents_of(folder.path() / "run") == before);
}

TEST_CASE("a finished run with checkpoints that is resumed changes no file and says so", "[cli]") {
  const std::string monitor = any_monitor();
  const TempFolder folder;
  INFO(monitor);
  REQUIRE(train(folder, monitor, {"checkpoint.every=4"}).code == 0);
  const std::map<std::string, std::string> before = contents_of(folder.path() / "run");
  const Said again = train(folder, monitor, {"checkpoint.every=2", "--resume", "auto", "--strategy", "zero3"});
  INFO(again.err);
  CHECK(again.code == 0);
  CHECK_THAT(again.err, Catch::Contains("nothing is left to train"));
  CHECK(contents_of(folder.path() / "run") == before);
}

TEST_CASE("a run whose checkpoints are gone is not started again from its first step", "[cli]") {
  const std::string monitor = any_monitor();
  const TempFolder folder;
  INFO(monitor);
  REQUIRE(train(folder, monitor, {"checkpoint.every=4"}).code == 0);
  fs::remove_all(folder.path() / "run" / "checkpoints");
  const std::map<std::string, std::string> before = contents_of(folder.path() / "run");
  const Said again = train(folder, monitor, {"checkpoint.every=4", "--resume", "auto"});
  INFO(again.err);
  CHECK(again.code == 1);
  CHECK_THAT(again.err, Catch::Contains("a checkpoint of step 6, which is not there"));
  CHECK(contents_of(folder.path() / "run") == before);
}

TEST_CASE("a folder of a run without its run.lock is not started again either", "[cli]") {
  const TempFolder folder;
  REQUIRE(train(folder, "csv").code == 0);
  fs::remove(folder.file("run/run.lock"));
  const std::map<std::string, std::string> before = contents_of(folder.path() / "run");
  CHECK(train(folder, "csv", {"--resume", "auto"}).code == 1);
  CHECK_THAT(train(folder, "csv").err, Catch::Contains("already holds files that a run writes (config.json)"));
  CHECK(contents_of(folder.path() / "run") == before);
}

TEST_CASE("an evaluation that comes again after a resume is recorded once", "[cli]") {
  const TempFolder folder;
  REQUIRE(train(folder, "jsonl,csv", {"checkpoint.every=2"}).code == 0);
  const std::string rows = rows_of(folder.path() / "run"), table = read_text(folder.file("run/metrics_eval.csv"));
  fs::remove_all(folder.path() / "run" / "checkpoints" / "step-6");
  make_evaluation_pending(folder.file("run/checkpoints/step-4"));
  const Said again = train(folder, "jsonl,csv", {"checkpoint.every=2", "--resume", "auto"});
  INFO(again.err);
  REQUIRE(again.code == 0);
  CHECK(rows_of(folder.path() / "run") == rows);
  CHECK(read_text(folder.file("run/metrics_eval.csv")) == table);
}

TEST_CASE("a resumed run has the rows of an unbroken one, with every monitor", "[cli]") {
  const std::string monitor = GENERATE(as<std::string>(), "jsonl", "csv", test_plugin("best_loss"));
  const TempFolder whole, broken;
  INFO(monitor);
  REQUIRE(train(whole, monitor, {"checkpoint.every=2"}).code == 0);
  REQUIRE(train(broken, monitor, {"checkpoint.every=2"}).code == 0);
  fs::remove_all(broken.path() / "run" / "checkpoints" / "step-6");
  const Said again = train(broken, monitor, {"checkpoint.every=2", "--resume", "auto", "--strategy", "zero3"});
  INFO(again.err);
  REQUIRE(again.code == 0);
  CHECK(steps_of(broken, monitor) == steps_of(whole, monitor));
}

TEST_CASE("a monitor that fails leaves no gap in the rows of the others", "[cli]") {
  const std::string monitor = GENERATE(as<std::string>(), "jsonl", "csv");
  const TempFolder whole, broken;
  INFO(monitor);
  REQUIRE(train(whole, monitor, {"checkpoint.every=1"}).code == 0);
  const Said failed = train(broken, test_plugin("bad_monitor") + "," + monitor,
                            {"checkpoint.every=1", "monitor.bad_monitor.at=row", "monitor.bad_monitor.step=3",
                             "monitor.bad_monitor.fault=throw"});
  REQUIRE(failed.code > 0);
  REQUIRE(fs::exists(broken.path() / "run" / "checkpoints" / "step-4"));  // the run goes on behind the failure
  const Said again = train(broken, monitor, {"checkpoint.every=1", "--resume", "auto"});
  INFO(again.err);
  REQUIRE(again.code == 0);
  CHECK(steps_of(broken, monitor) == steps_of(whole, monitor));
}

TEST_CASE("a resume that a monitor stops before its first step takes no row from another one", "[cli]") {
  const std::string monitor =
      GENERATE(as<std::string>(), "jsonl", "csv", "sqlite", "wandb", "tensorboard", test_plugin("best_loss"));
  const TempFolder folder;
  INFO(monitor);
  REQUIRE(train(folder, monitor, {"checkpoint.every=2"}).code == 0);
  fs::remove_all(folder.path() / "run" / "checkpoints" / "step-6");
  std::map<std::string, std::string> before = contents_of(folder.path() / "run");
  const Said failed = train(
      folder, monitor + "," + test_plugin("bad_monitor"),
      {"checkpoint.every=2", "--resume", "auto", "monitor.bad_monitor.at=begin", "monitor.bad_monitor.fault=throw"});
  INFO(failed.err);
  CHECK(failed.code > 0);
  CHECK_THAT(failed.err, Catch::Contains("the tide is out"));
  check_rows_are_kept(folder, before, "events.");
}

TEST_CASE("a resume that fails in its first step takes no row from a monitor", "[cli]") {
  const std::string monitor =
      GENERATE(as<std::string>(), "jsonl", "csv", "sqlite", "wandb", "tensorboard", test_plugin("best_loss"));
  const TempFolder folder;
  INFO(monitor);
  REQUIRE(train(folder, monitor, {"checkpoint.every=2"}).code == 0);
  fs::remove_all(folder.path() / "run" / "checkpoints" / "step-6");
  const std::map<std::string, std::string> before = contents_of(folder.path() / "run");
  const Said failed = train(folder, monitor,
                            {"checkpoint.every=2", "--resume", "auto", "--strategy", test_plugin("bad_strategy"),
                             "strategy.at=step", "strategy.fault=fails"});
  INFO(failed.err);
  CHECK(failed.code > 0);
  CHECK_THAT(failed.err, Catch::Contains("resumed after step 4") && Catch::Contains("the tide is out"));
  check_rows_are_kept(folder, before, "events.out");
}

TEST_CASE("rows of a monitor that a resumed run does not use any more are kept", "[cli]") {
  const TempFolder folder;
  REQUIRE(train(folder, "csv,tensorboard", {"checkpoint.every=4"}).code == 0);
  const std::map<std::string, std::string> before = contents_of(folder.path() / "run");
  fs::remove_all(folder.path() / "run" / "checkpoints" / "step-6");
  const Said other = train(folder, "jsonl", {"checkpoint.every=4", "--resume", "auto"});
  REQUIRE(other.code == 0);
  CHECK_THAT(other.err, Catch::Contains("steps up to 4 were recorded without monitor 'jsonl'"));
  const std::map<std::string, std::string> after = contents_of(folder.path() / "run");
  for (const auto& [path, text] : before)
    if (path.ends_with(".csv") || path.find("events.out") != std::string::npos) CHECK(after.at(path) == text);
  CHECK(read_run(folder.path() / "run").steps.size() == 2);
}

// The evaluations of the run before stayed until the first new one, or for good.
TEST_CASE("a run that begins anew has no table and no events of the one before", "[cli]") {
  const TempFolder folder;
  const std::string bad = test_plugin("bad_monitor");
  CHECK(train(folder, "csv,tensorboard," + bad,
              {"checkpoint.every=100", "monitor.bad_monitor.at=row", "monitor.bad_monitor.step=4",
               "monitor.bad_monitor.fault=segv"})
            .code > 0);
  REQUIRE(fs::exists(folder.file("run/metrics_eval.csv")));
  std::ofstream(folder.file("run/metrics_of_mine.csv")) << "step,value\n";
  const Said again =
      train(folder, "csv,tensorboard",
            {"checkpoint.every=100", "train.eval_every=0", "--resume", "auto", "--resume-allow", "train.eval_every"});
  INFO(again.err);
  REQUIRE(again.code == 0);
  CHECK_FALSE(fs::exists(folder.file("run/metrics_eval.csv")));
  CHECK(read_text(folder.file("run/metrics_of_mine.csv")) == "step,value\n");
  size_t files = 0;
  for (const auto& [path, text] : contents_of(folder.path() / "run")) {
    if (path.find("events.out") == std::string::npos) continue;
    ++files;
    CHECK_THAT(text, Catch::Contains("\x3a\x02\x08\x01"));  // Event.session_log: START, from which TensorBoard reads
  }
  CHECK(files == 2);
}

TEST_CASE("a run that was killed before its first checkpoint begins anew, and its rows are the same", "[cli]") {
  const std::string monitor = GENERATE(as<std::string>(), "jsonl", "csv", test_plugin("best_loss"));
  const TempFolder whole, broken;
  INFO(monitor);
  REQUIRE(train(whole, monitor, {"checkpoint.every=100"}).code == 0);
  const std::string bad = test_plugin("bad_monitor");
  CHECK(train(broken, monitor + "," + bad,
              {"checkpoint.every=100", "monitor.bad_monitor.at=row", "monitor.bad_monitor.step=4",
               "monitor.bad_monitor.fault=segv"})
            .code > 0);
  REQUIRE_FALSE(steps_of(broken, monitor).empty());
  const Said again = train(broken, monitor, {"checkpoint.every=100", "--resume", "auto"});
  INFO(again.err);
  REQUIRE(again.code == 0);
  CHECK_THAT(again.err, Catch::Contains("begins at step 1"));
  CHECK(steps_of(broken, monitor) == steps_of(whole, monitor));
}
