// SPDX-License-Identifier: Apache-2.0
//
// Outputs that can't be written: stdout, the log, the configuration, metrics. The run fails with a sentence and keeps what it
// has trained.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <csignal>

#include "fixtures/harness/skip.hpp"
#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;
namespace fs = std::filesystem;

namespace {

enum class Stdout { full, closed };
Said run_without(Stdout how, const Words& words) {
  Process process(words, [how] {
    close(STDOUT_FILENO);
    if (how == Stdout::full) dup2(open("/dev/full", O_WRONLY), STDOUT_FILENO);
  });
  const int code = process.wait();
  return {code, process.out(), process.err()};
}

Words toy(const TempFolder& folder, const Words& more = {}) {
  return joined({"--model", toy_model(), "--strategy", "zero2", "--nproc", "2", "train.steps=5", "run.sample_tokens=0",
                 "run.dir=" + folder.file("run")},
                more);
}

}  // namespace

TEST_CASE("every command fails with a sentence if its output can't be written", "[cli]") {
  const Stdout how = GENERATE(Stdout::full, Stdout::closed);
  const TempFolder folder;
  REQUIRE(call_ddhost(toy(folder, {"checkpoint.every=5", "run.quiet=true"})).code == 0);
  const std::string checkpoint = folder.file("run/checkpoints/step-5");
  const std::vector<Words> commands = {{"--help"},
                                       {"--version"},
                                       {"ckpt", "--help"},
                                       {"list"},
                                       {"inspect", toy_model()},
                                       {"inspect", "--markdown", toy_model()},
                                       {"ckpt", "ls", folder.file("run")},
                                       {"ckpt", "show", checkpoint},
                                       {"ckpt", "verify", checkpoint},
                                       {"export", checkpoint, folder.file("exported")},
                                       {"runs", "ls", folder.path().string()},
                                       {"runs", "show", folder.file("run")},
                                       {"runs", "tail", folder.file("run")},
                                       {"runs", "plot", folder.file("run")},
                                       {"runs", "diff", folder.file("run"), folder.file("run")},
                                       {"--dry-run", "--model", toy_model()},
                                       {"plan", "--model", toy_model()},
                                       {"eval", "--model", toy_model(), "--weights", checkpoint}};
  for (const Words& words : commands) {
    const Said end = run_without(how, words);
    INFO(words.front() << ": " << end.err);
    CHECK(end.code == 1);
    CHECK_THAT(end.err, Catch::Contains("can't write to stdout"));
  }
}

TEST_CASE("a command whose reader has ended ends without a sentence", "[cli]") {
  for (const Words& words : {Words{"list"}, Words{"inspect", "--markdown", toy_model()}, Words{"--dry-run"}}) {
    Process process(joined(words, words.front() == "--dry-run" ? Words{"--model", toy_model()} : Words{}), [] {
      std::array<int, 2> ends{};
      if (pipe(ends.data()) != 0) _exit(126);
      dup2(ends[1], STDOUT_FILENO);
      close(ends[0]);
      close(ends[1]);
    });
    CHECK(process.wait() == 128 + SIGPIPE);
    INFO(process.err());
    CHECK_THAT(process.err(), !Catch::Contains("stdout"));
    if (words.front() != "--dry-run") CHECK(process.err().empty());  // that prints the plan
  }
}

TEST_CASE("a training whose tables can't be printed fails, and keeps its weights", "[cli]") {
  const Stdout how = GENERATE(Stdout::full, Stdout::closed);
  const TempFolder folder;
  const Said end = run_without(how, toy(folder, {"train.save_final=" + folder.file("w.safetensors")}));
  CHECK(end.code == 1);
  CHECK_THAT(end.err, Catch::Contains("can't write to stdout"));
  CHECK(fs::file_size(folder.file("w.safetensors")) > 1000);
  CHECK(run_without(how, toy(folder, {"run.quiet=true", "run.dir=" + folder.file("quiet")})).code == 0);
}

TEST_CASE("a configuration or log of the run that can't be written is an error before the first step", "[cli]") {
  const std::string name = GENERATE("config.json", "log.txt");
  const bool full = GENERATE(false, true);
  const TempFolder folder;
  fs::create_directories(folder.file("run"));
  if (full)
    fs::create_symlink("/dev/full", folder.file("run/" + name));
  else
    fs::create_directory(folder.file("run/" + name));
  const Said end = call_ddhost(toy(folder, {"run.quiet=true"}));
  INFO(end.err);
  CHECK(end.code == 1);
  CHECK_THAT(end.err, Catch::Contains("run/" + name) && Catch::Contains("another run.dir"));
  CHECK_THAT(end.err, !Catch::Contains("unexpected error"));
  CHECK_FALSE(fs::exists(folder.file("run/metrics.jsonl")));
}

TEST_CASE("a run whose metrics can't be written ends after the next step, and keeps weights and checkpoint", "[cli]") {
  const TempFolder folder;
  fs::create_directories(folder.file("run"));
  fs::create_symlink("/dev/full", folder.file("run/metrics.csv"));
  const Said end = call_ddhost(toy(folder, {"--monitor", "jsonl,csv", "train.steps=1000", "checkpoint.every=1000",
                                            "train.save_final=" + folder.file("w.safetensors")}));
  INFO(end.err);
  CHECK(end.code == 1);
  CHECK_THAT(end.err, Catch::Contains("ddhost: rank 0: monitor 'csv'") && Catch::Contains("No space left on device"));
  // The checkpoint has them: a file would be in the way of the run that goes on.
  CHECK(fs::file_size(folder.file("run/checkpoints/step-2/model.safetensors")) > 1000);
  CHECK_FALSE(fs::exists(folder.file("w.safetensors")));
}

TEST_CASE("a run without checkpoints whose metrics can't be written writes its weights", "[cli]") {
  const TempFolder folder;
  fs::create_directories(folder.file("run"));
  fs::create_symlink("/dev/full", folder.file("run/metrics.csv"));
  const Said end = call_ddhost(toy(folder, {"--monitor", "jsonl,csv", "train.steps=1000", "checkpoint.on_exit=false",
                                            "train.save_final=" + folder.file("w.safetensors")}));
  INFO(end.err);
  CHECK(end.code == 1);
  CHECK(fs::file_size(folder.file("w.safetensors")) > 1000);
}

TEST_CASE("steps whose gradients are not finite are named at first, then counted, and end the run", "[cli]") {
  const auto bad = [](const Words& more) {
    return toy_run(joined({"--strategy", "zero2", "optimizer.lr=1e10", "train.clip_norm=0", "train.steps=300"}, more));
  };
  const auto warnings = [](const ToyRun& run) {
    size_t count = 0;
    for (size_t at = run.err.find("is skipped"); at != std::string::npos; at = run.err.find("is skipped", at + 1))
      ++count;
    return count;
  };
  const ToyRun end = bad({});
  INFO(end.err);
  CHECK(end.code == 1);
  CHECK_THAT(end.err, Catch::Contains("100 steps in a row") && Catch::Contains("precision.max_skipped"));
  CHECK(end.record.steps.size() < 110);
  CHECK(warnings(end) > 2);
  CHECK(warnings(end) < 9);
  const ToyRun allowed = bad({"precision.max_skipped=0"});
  CHECK(allowed.code == 0);
  CHECK_THAT(allowed.err, Catch::Contains("the gradients of 299 steps were not finite"));
  CHECK(warnings(allowed) < 9);
  CHECK(bad({"precision.max_skipped=7"}).record.steps.size() == 8);
}

TEST_CASE("weights with NaN or infinity are refused where they are loaded, by name", "[cli]") {
  const float value = GENERATE(std::nanf(""), -INFINITY);
  const TempFolder folder;
  const std::string file = folder.file("w.safetensors");
  REQUIRE(call_ddhost(toy(folder, {"run.quiet=true", "train.save_final=" + file})).code == 0);
  {
    std::fstream weights(file, std::ios::in | std::ios::out | std::ios::binary);
    weights.seekp(-8, std::ios::end);
    weights.write(reinterpret_cast<const char*>(&value), sizeof value);
  }
  const Words init = {"run.dir=" + folder.file("second"), "train.init_from=" + file, "run.quiet=true"};
  for (const Words& words : {toy(folder, init), toy(folder, joined(init, {"train.steps=0"})),
                             Words{"eval", "--model", toy_model(), "--weights", file}}) {
    const Said end = call_ddhost(words);
    INFO(end.err);
    CHECK(end.code == 1);
    CHECK_THAT(end.err, Catch::Contains("the weights of train.init_from (--weights) are not finite: parameter '"));
  }
}

// Before, the tables left out half of a process: what plugins allocate themselves, and libraries.
TEST_CASE("the tables at the end count all of the process", "[cli]") {
  if (read_text("/proc/self/smaps").find("Pss:") == std::string::npos) return skip("this Linux does not tell the PSS");
  const std::string comm = GENERATE("shm", "loop");  // processes, and threads of one
  const TempFolder folder;
  const Said said = call_ddhost(toy(folder, {"--comm", comm, "model.hidden=2000"}));
  INFO(said.err);
  REQUIRE(said.code == 0);
  CHECK_THAT(said.out, Catch::Contains("\n  libraries  ") && Catch::Contains("\n  difference  "));
  const RunRecord record = read_run(folder.path() / "run");
  CHECK(record.summary.at("ranks").size() == 2);
  for (const nlohmann::json& rank : record.summary.at("ranks")) {
    const nlohmann::json& bytes = rank.at("process_bytes");
    INFO(bytes.dump());
    const auto of = [&](const char* name) { return bytes.at(name).get<double>(); };
    CHECK(of("tags") > 600'000);     // more than 66,213 parameters, gradients and half of the two moments
    CHECK(of("tags") < 20'000'000);  // of this rank alone: comm has 3.4 MB for each
    CHECK(of("libraries") > 100'000);
    CHECK(of("stacks") > 0);
    double sum = of("difference");
    for (const char* name : {"tags", "pools", "data_sets", "libraries", "files", "stacks"}) sum += of(name);
    CHECK(sum == of("pss"));
    CHECK(std::abs(of("difference")) < 0.05 * of("pss") + 1'200'000);  // small heaps: pages of which a part is used
  }
}
