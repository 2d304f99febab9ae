// SPDX-License-Identifier: Apache-2.0
//
// A run's folder: what a new run does not touch there, and a folder that is taken away from a run.
#include <catch2/catch.hpp>

#include "cli/checkpoint_runs.hpp"
#include "fixtures/harness/processes.hpp"

using namespace ddhost::test;
namespace fs = std::filesystem;

TEST_CASE("a run that is resumed into another folder does not overwrite the file of --config there", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", {"checkpoint.every=4"}).code == 0);
  fs::create_directory(runs.dir("b"));
  const std::string file = runs.dir("b") + "/config.json", text = "{\"optimizer\": {\"lr\": 0.01}}  // mine\n";
  std::ofstream(file) << text;
  const Said said = runs.train("b", {"--config", file, "--resume", runs.step("a", 4)});
  INFO(said.err);
  CHECK(said.code == 1);
  CHECK_THAT(said.err, Catch::Contains("holds the file of --config"));
  CHECK(read_text(file) == text);
}

TEST_CASE("a refused run leaves a folder of very many files as it was", "[cli]") {
  const Runs runs;
  fs::create_directory(runs.dir("many"));
  for (int i = 0; i < 3000; ++i)
    std::ofstream(runs.dir("many") + "/a file of some other program " + std::to_string(i)) << i;
  const Said said =
      runs.train("many", {"--strategy", test_plugin("bad_strategy"), "strategy.at=attach", "strategy.fault=silent"});
  INFO(said.err);
  CHECK(said.code == 1);
  CHECK_FALSE(fs::exists(runs.dir("many") + "/run.lock"));
  CHECK(contents_of(runs.dir("many")).size() == 3000);
}

TEST_CASE("a new run does not mix with files that another program or run has left in its folder", "[cli]") {
  const char* const name = GENERATE("config.json", "log.txt", "checkpoints/step-3/x");
  const Runs runs;
  const fs::path file = fs::path(runs.dir("a")) / name;
  fs::create_directories(file.parent_path());
  std::ofstream(file) << "mine";
  const Said said = runs.train("a", {"checkpoint.every=1"});
  INFO(said.err);
  CHECK(said.code == 1);
  CHECK_THAT(said.err,
             Catch::Contains("already holds files that a run writes") && Catch::Contains("choose another folder"));
  CHECK(read_text(file) == "mine");
  CHECK_FALSE(fs::exists(runs.dir("a") + "/run.lock"));
}

TEST_CASE("a folder of checkpoints that can't be used is refused before the first step", "[cli]") {
  const Runs runs;
  fs::create_directory(runs.dir("a"));
  std::ofstream(runs.dir("a") + "/checkpoints") << "mine";
  const Said said = runs.train("a", {"checkpoint.every=100"});
  INFO(said.err);
  CHECK(said.code == 1);
  CHECK_THAT(said.err, Catch::Contains("checkpoints' is not a folder"));
  CHECK(contents_of(runs.dir("a")).size() == 1);
}

TEST_CASE("a run whose run.lock is removed while it trains ends with an error", "[cli]") {
  const Runs runs;
  const std::string folder = runs.dir("a");
  Process process(
      {"--model", toy_model(), "--nproc", "2", "train.steps=1000000", "run.quiet=true", "run.dir=" + folder});
  REQUIRE(soon([&] { return steps_in(read_text(folder + "/metrics.jsonl")).size() > 2; }));
  fs::remove(folder + "/run.lock");
  CHECK(process.wait() == 1);
  CHECK_THAT(process.err(), Catch::Contains("run.lock' was removed while the run trained"));
}
