// SPDX-License-Identifier: Apache-2.0
//
// What paths stand for a checkpoint: the folder of a run, and the file `latest`; and the comparison of two models.
#include <catch2/catch.hpp>
#include <cstdio>
#include <sstream>

#include "cli/checkpoint_runs.hpp"

using namespace ddhost::test;

TEST_CASE("ckpt diff of two models counts each name once", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", {"train.steps=1", "checkpoint.every=1", "model.layers=1"}).code == 0);
  REQUIRE(runs.train("b", {"train.steps=1", "checkpoint.every=1", "model.layers=2", "model.vocab=40"}).code == 0);
  const Said said = call_ddhost({"ckpt", "diff", runs.step("a", 1), runs.step("b", 1)});
  INFO(said.out);
  CHECK(said.code == 1);
  CHECK_THAT(said.out, Catch::Contains("\nembedding: F32 [31, 5] in the first, F32 [40, 5] in the second\n") ||
                           Catch::StartsWith("embedding: F32 [31, 5] in the first, F32 [40, 5] in the second\n"));
  CHECK_THAT(said.out, Catch::Contains("layers.1.w1: only the second has it\n"));
  size_t lines = 0, differing = 0, all = 0;
  std::istringstream in(said.out);
  std::string last;
  for (std::string line; std::getline(in, line); last = line) ++lines;
  REQUIRE(std::sscanf(last.c_str(), "%zu of %zu tensors differ", &differing, &all) == 2);
  CHECK(differing == lines - 1);
  CHECK(differing <= all);
  const auto names = [&](const char* run) {
    return nlohmann::json::parse(read_text(runs.step(run, 1) + "/manifest.json")).at("tensors").size();
  };
  CHECK(all == names("b"));  // it has each name of the smaller model
  CHECK(names("a") < names("b"));
}

TEST_CASE("a run's folder stands for its newest complete checkpoint, and `latest` for the one it names", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", {"checkpoint.every=2", "checkpoint.keep_last=0"}).code == 0);
  const auto eval = [&](const std::string& weights) {
    return call_ddhost({"eval", "--model", toy_model(), "run.quiet=true", "--nproc", "2", "--weights", weights});
  };
  const std::string run = runs.dir("a"), latest = run + "/checkpoints/latest";
  const std::string newest = eval(runs.step("a", 6)).out;
  REQUIRE(newest != eval(runs.step("a", 4)).out);
  for (const std::string& path : {run, run + "/", run + "/checkpoints", latest}) {
    INFO(path);
    const Said said = eval(path);
    INFO(said.err);
    CHECK(said.code == 0);
    CHECK(said.out == newest);
    CHECK((said.err.find("newest complete checkpoint, step-6, is used") != std::string::npos) == (path != latest));
    CHECK_THAT(call_ddhost({"ckpt", "show", path}).out, Catch::StartsWith("step            6\n"));
    CHECK_THAT(call_ddhost({"ckpt", "diff", path, runs.step("a", 6)}).out, Catch::StartsWith("0 of "));
    CHECK(call_ddhost({"ckpt", "verify", path}).code == 0);
    const std::string folder = runs.dir("exported" + std::to_string(path.size()));
    REQUIRE(call_ddhost({"export", path, folder}).code == 0);
    CHECK(eval(folder).out == newest);
  }
  // A newer one that is damaged is passed over, which is said.
  const auto cut = [&](int step) { fs::resize_file(runs.step("a", step) + "/manifest.json", 10); };
  cut(6);
  const Said older = eval(run);
  CHECK(older.out == eval(runs.step("a", 4)).out);
  CHECK_THAT(older.err, Catch::Contains("step-6") && Catch::Contains("damaged") &&
                            Catch::Contains("newest complete checkpoint, step-4, is used"));
  CHECK(eval(latest).code == 1);
  for (const int step : {2, 4}) cut(step);
  const Said none = call_ddhost({"export", run, runs.dir("none")});
  CHECK(none.code == 1);
  CHECK_THAT(none.err, Catch::Contains("all checkpoints in '" + run + "' are damaged"));
  REQUIRE(runs.train("plain").code == 0);
  const Said plain = eval(runs.dir("plain"));
  CHECK(plain.code == 1);
  CHECK_THAT(plain.err, Catch::Contains("that of a run that has no checkpoint"));
  CHECK_THAT(call_ddhost({"export", runs.dir("plain"), runs.dir("none")}).err, Catch::Contains("is not a checkpoint"));
}

TEST_CASE("a run in another folder goes on from the newest checkpoint of a run's folder, or from `latest`", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", {"checkpoint.every=2", "train.steps=4"}).code == 0);
  int n = 0;
  for (const std::string& path : {runs.dir("a"), runs.dir("a") + "/checkpoints/latest"}) {
    INFO(path);
    const std::string name = "b" + std::to_string(++n);
    const Said said = runs.train(name, {"--resume", path, "--resume-allow", "train.steps"});
    INFO(said.err);
    REQUIRE(said.code == 0);
    CHECK(steps_in(read_text(runs.dir(name) + "/metrics.jsonl")) == std::vector<int>{5, 6});
  }
}
