// SPDX-License-Identifier: Apache-2.0
//
// The decisions and checks before the ranks start.
#include "cli/prepare.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "cli/command_line.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/throws.hpp"

namespace fs = std::filesystem;
using namespace ddhost;
using namespace ddhost::test;

namespace {

// A plan as prepare_run leaves it, for the folder alone.
PreparedRun plan_for(const fs::path& run_dir, const std::string& source, const std::string& save_final = "") {
  PreparedRun plan;
  plan.config.set("run.dir", run_dir.string(), source);
  plan.config.set("train.save_final", save_final, "the command line");
  plan.run_dir = run_dir;
  return plan;
}
std::string refusal(PreparedRun plan) {
  return sentence_of([&] { make_run_folder(plan); });
}

CommandLine parse(std::vector<const char*> words) {
  words.insert(words.begin(), "ddhost");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}

}  // namespace

TEST_CASE("of a flag that is given twice the last value counts", "[prepare]") {
  const CommandLine line = parse({"--nproc", "1", "--nproc", "2"});
  REQUIRE(line.overrides.size() == 1);
  CHECK(line.overrides[0].text == "2");
}

TEST_CASE("a derived run folder gets a new suffix when it exists", "[prepare]") {
  const TempFolder folder;
  for (const char* expected : {"run", "run-2", "run-3"}) {
    PreparedRun plan = plan_for(folder.file("run"), "derived");
    make_run_folder(plan);
    CHECK(plan.run_dir == folder.path() / expected);
    CHECK(plan.config.text("run.dir") == folder.file(expected));
    CHECK(fs::is_directory(plan.run_dir));
  }
}

TEST_CASE("a requested run folder is used, but never a second time", "[prepare]") {
  const TempFolder folder;
  CHECK(refusal(plan_for(folder.path() / "a" / "b", "the command line")).empty());
  CHECK_THAT(refusal(plan_for(folder.path() / "a" / "b", "the command line")), Catch::Contains("already holds a run"));
  leave_unused_folder(plan_for(folder.path() / "a" / "b", "the command line"));
  CHECK(refusal(plan_for(folder.path() / "a" / "b", "the command line")).empty());
  std::ofstream(folder.path() / "a" / "b" / "metrics.jsonl") << "{}\n";
  CHECK_THAT(refusal(plan_for(folder.path() / "a" / "b", "the command line")), Catch::Contains("already holds a run"));
  CHECK(fs::file_size(folder.path() / "a" / "b" / "metrics.jsonl") == 3);
}

TEST_CASE("folders that can't be written are reported before the run", "[prepare]") {
  const TempFolder folder;
  std::ofstream(folder.file("file")) << "x";
  CHECK_THAT(refusal(plan_for(folder.file("file"), "the command line")), Catch::Contains("can't be created"));
  CHECK_THAT(refusal(plan_for("/dev/null/run", "the command line")), Catch::Contains("/dev/null/run"));
  CHECK_THAT(refusal(plan_for("/proc", "the command line")), Catch::Contains("nothing can be written"));
  CHECK_THAT(refusal(plan_for(folder.file("run"), "derived", "/no/such/w.safetensors")), Catch::Contains("/no/such"));
  CHECK_THAT(refusal(plan_for(folder.file("run"), "derived", folder.path().string())), Catch::Contains("is a folder"));
  CHECK_FALSE(fs::exists(folder.file("run")));
  CHECK(refusal(plan_for(folder.file("run"), "derived", folder.file("run/w.safetensors"))).empty());
}

TEST_CASE("the write test leaves only the file that marks the folder as used", "[prepare]") {
  const TempFolder folder;
  CHECK(refusal(plan_for(folder.file("run"), "derived")).empty());
  CHECK(fs::file_size(folder.file("run/metrics.jsonl")) == 0);
  CHECK(std::distance(fs::directory_iterator(folder.file("run")), fs::directory_iterator()) == 1);
}

TEST_CASE("cores are divided among the ranks unless the user has set the number of threads", "[prepare]") {
  setenv("MKL_NUM_THREADS", "7", 1);
  unsetenv("OMP_NUM_THREADS");
  share_cores(100000);
  CHECK(std::string(std::getenv("OMP_NUM_THREADS")) == "1");
  CHECK(std::string(std::getenv("MKL_NUM_THREADS")) == "7");
  unsetenv("MKL_NUM_THREADS");
  setenv("OMP_NUM_THREADS", "3,2", 1);
  share_cores(1);
  CHECK(std::string(std::getenv("MKL_NUM_THREADS")) == "3");
  unsetenv("OMP_NUM_THREADS");
  unsetenv("MKL_NUM_THREADS");
}

TEST_CASE("the command train may be left out, and flags win over key=value arguments", "[prepare]") {
  const CommandLine line = parse({"--strategy", "zero3", "train.steps=5", "strategy.plugin=ddp", "--nproc", "4"});
  CHECK(line.command == Command::kTrain);
  const UserConfig user = UserConfig::read("", line.overrides);
  CHECK(user.find("strategy.plugin")->text == "zero3");
  CHECK(user.find("train.steps")->text == "5");
  CHECK(user.find("run.nproc")->source == "--nproc");
  CHECK(parse({}).command == Command::kTrain);
  CHECK(parse({"train", "--dry-run"}).dry_run);
  CHECK(parse({"list"}).command == Command::kList);
  CHECK(parse({"inspect", "x.so"}).inspect_file == "x.so");
}

TEST_CASE("mistakes on the command line end with 2", "[prepare]") {
  const auto code = [](std::vector<const char*> words) {
    try {
      parse(std::move(words));
    } catch (const CommandLineExit& end) {
      return end.code;
    }
    return -1;
  };
  CHECK(code({"--bogus"}) == 2);
  CHECK(code({"trian"}) == 2);
  CHECK(code({"inspect"}) == 2);
  CHECK(code({"--version"}) == 0);
}
