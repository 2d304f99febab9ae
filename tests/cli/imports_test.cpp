// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints of other programs as initial weights: train.init_from and --weights take what torch, DeepSpeed and others
// wrote (tests/data/make_imports.py).
#include <catch2/catch.hpp>
#include <cmath>

#include "cli/checkpoint_runs.hpp"
#include "fixtures/harness/safetensors.hpp"
#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;

namespace {

std::string import_of(const std::string& name) {
  return std::string(DDHOST_SOURCE_DIR) + "/tests/data/imports/" + name;
}

}  // namespace

TEST_CASE("a model begins with the values of a checkpoint of torch or DeepSpeed", "[cli]") {
  const auto& [path, folder] = GENERATE(table<std::string, std::string>({{"torch/nanogpt_ckpt.pt", "torch"},
                                                                         {"torch/wrapped.pt", "torch"},
                                                                         {"dcp", "dcp"},
                                                                         {"dcp_flat", "dcp_flat"},
                                                                         {"dcp_app", "dcp_app"},
                                                                         {"zero3", "zero3"}}));
  INFO(path);
  const TempFolder out;
  const std::string file = out.file("first.safetensors");
  ran(toy_run({"model.layers=1", "train.steps=0", "--save-final", file, "train.init_from=" + import_of(path),
               "--strategy", "zero3"}));
  const GoldenFile expected = read_safetensors(import_of(folder + "/expected.safetensors"));
  const GoldenFile found = read_safetensors(file);
  CHECK(found.tensors.size() == 8);
  for (const auto& [name, tensor] : found.tensors) {
    INFO(name);
    CHECK(tensor.shape == expected.at(name).shape);
    CHECK((tensor.bytes == expected.at(name).bytes));
  }
}

TEST_CASE("a file of torch that would run something is refused, and a run on it ends with one sentence", "[cli]") {
  const TempFolder folder;
  const std::string good = read_text(import_of("torch/state_dict.pt")), called = "collections\nOrderedDict";
  const size_t at = good.find(called);
  REQUIRE(at != std::string::npos);
  std::string evil = good;
  evil.replace(at, called.size(), "subprocess1\ngetoutput__");  // as long as before
  REQUIRE(evil.size() == good.size());
  std::ofstream(folder.file("evil.pt"), std::ios::binary) << evil;
  const ToyRun run = toy_run({"model.layers=1", "train.steps=0", "train.init_from=" + folder.file("evil.pt")});
  CHECK(run.code == 1);
  CHECK_THAT(run.err, Catch::Contains("evil.pt") && Catch::Contains("'subprocess1.getoutput__'"));
}

TEST_CASE("ckpt import takes over Adam's moments and steps, and a run goes on from them", "[cli]") {
  const std::string from = GENERATE("dcp", "dcp_flat", "dcp_app", "zero1", "zero3", "round_robin", "universal");
  INFO(from);
  const Runs runs;
  const Words options = {"model.layers=1", "train.steps=6", "checkpoint.every=100", "model.plugin=" + toy_model()};
  Words first = options;
  first.push_back("train.steps=1");
  REQUIRE(runs.train("like", first).code == 0);
  const Said said =
      call_ddhost({"ckpt", "import", import_of(from), "--like", runs.step("like", 1), "--out", runs.dir("imported")});
  INFO(said.err);
  REQUIRE(said.code == 0);
  CHECK(said.out == runs.step("imported", 3) + "\n");
  CHECK(call_ddhost({"ckpt", "verify", runs.step("imported", 3)}).code == 0);
  const GoldenFile expected = read_safetensors(import_of(from + "/expected.safetensors"));
  size_t tensors = 0;
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors"}) {
    for (const auto& [name, tensor] : read_safetensors(runs.step("imported", 3) + file).tensors) {
      INFO(name);
      CHECK((tensor.bytes == expected.at(name).bytes));
      ++tensors;
    }
  }
  CHECK(tensors == 8 + 2 * 7);
  const Said resumed = runs.train("on", {"--resume", runs.step("imported", 3), "model.layers=1", "checkpoint.every=100",
                                         "--resume-allow", "train.steps"});
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK(steps_in(read_text(runs.dir("on") + "/metrics.jsonl")) == std::vector<int>{4, 5, 6});
  const nlohmann::json progress =
      nlohmann::json::parse(read_text(runs.step("on", 6) + "/manifest.json")).at("progress");
  CHECK(progress.at("optimizers").at(0).at("param_steps").at("embedding") == 6);
}

TEST_CASE("ckpt import refuses what it can't take over, and leaves nothing", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("like", {"train.steps=1", "checkpoint.every=1"}).code == 0);  // of three layers
  const auto import = [&](const std::string& from) {
    return call_ddhost({"ckpt", "import", from, "--like", runs.step("like", 1), "--out", runs.dir("out")});
  };
  const Said other = import(import_of("zero2"));
  CHECK(other.code == 1);
  CHECK_THAT(other.err, Catch::Contains("has no tensor 'layers.1."));
  const Said weights = import(import_of("torch/nanogpt_ckpt.pt"));
  CHECK(weights.code == 1);
  CHECK_THAT(weights.err, Catch::Contains("no optimizer state") && Catch::Contains("train.init_from"));
  CHECK(runs.saved("out").empty());
}

TEST_CASE("a schedule that counts updates goes on after those of the imported checkpoint", "[cli]") {
  const Runs runs;
  const Words schedule = {
      "model.layers=1",   "--schedule",        "warmup", "schedule.warmup_steps=4", "schedule.warmup_type=linear",
      "optimizer.lr=0.5", "checkpoint.every=1"};
  Words first = schedule;
  first.push_back("train.steps=1");
  REQUIRE(runs.train("like", first).code == 0);
  const Said said = call_ddhost(
      {"ckpt", "import", import_of("zero1"), "--like", runs.step("like", 1), "--out", runs.dir("imported")});
  INFO(said.err);
  REQUIRE(said.code == 0);
  Words more = schedule;
  more.insert(more.end(), {"train.steps=4", "--resume", runs.step("imported", 3), "--resume-allow", "train.steps"});
  const Said resumed = runs.train("on", more);
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  const std::string rows = read_text(runs.dir("on") + "/metrics.jsonl");
  const nlohmann::json row = nlohmann::json::parse(rows.substr(0, rows.find('\n')));
  CHECK(row.at("step") == 4);
  CHECK(row.at("lr") == 0.25);  // after three updates: 2 of 4 parts
}

// Files of GPT-2 by old versions of transformers hold masks.
TEST_CASE("ckpt import names a tensor that the run has not, and what to do with it", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("like", {"train.steps=1", "checkpoint.every=1", "model.layers=1"}).code == 0);
  const std::string from = runs.dir("universal");
  fs::copy(import_of("universal"), from, fs::copy_options::recursive);
  fs::create_directory(from + "/zero/layers.0.mask");
  fs::copy_file(from + "/zero/bias/fp32.pt", from + "/zero/layers.0.mask/fp32.pt");
  const Said said = call_ddhost({"ckpt", "import", from, "--like", runs.dir("like"), "--out", runs.dir("out")});
  INFO(said.err);
  CHECK(said.code == 1);
  CHECK_THAT(said.err, Catch::Contains("the tensor 'layers.0.mask'") && Catch::Contains("save it without the tensor") &&
                           Catch::Contains("allow_surplus"));
  CHECK(runs.saved("out").empty());
}

TEST_CASE("a universal checkpoint with exchanged parameters is refused as weights and by ckpt import", "[cli]") {
  const std::string from = import_of("universal_round_robin");
  const Runs runs;
  REQUIRE(runs.train("like", {"train.steps=1", "checkpoint.every=1", "model.layers=1"}).code == 0);
  const Said imported = call_ddhost({"ckpt", "import", from, "--like", runs.step("like", 1), "--out", runs.dir("out")});
  CHECK(imported.code == 1);
  CHECK(runs.saved("out").empty());
  const ToyRun run = toy_run({"model.layers=1", "train.steps=0", "train.init_from=" + from});
  CHECK(run.code == 1);
  for (const std::string& said : {imported.err, run.err})
    CHECK_THAT(said, Catch::Contains("parameter 'bias'") && Catch::Contains("round_robin_gradients"));
}

TEST_CASE("ckpt import refuses parameters that were updated a different number of times", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("like", {"train.steps=1", "checkpoint.every=1", "model.layers=1"}).code == 0);
  const std::string from = runs.dir("universal"), file = from + "/zero/bias/step.pt";
  fs::copy(import_of("universal"), from, fs::copy_options::recursive);
  std::string bytes = read_text(file);
  const size_t at = bytes.find(std::string("\0\0\x40\x40", 4));  // 3 as a float
  REQUIRE(at != std::string::npos);
  bytes.replace(at, 4, std::string("\0\0\0\x40", 4));  // 2
  std::ofstream(file, std::ios::binary) << bytes;
  const Said said = call_ddhost({"ckpt", "import", from, "--like", runs.dir("like"), "--out", runs.dir("out")});
  CHECK(said.code == 1);
  CHECK_THAT(said.err, Catch::Contains("different numbers of updates") && Catch::Contains("train.init_from"));
  CHECK(runs.saved("out").empty());
  ran(toy_run({"model.layers=1", "train.steps=0", "train.init_from=" + from}));
}

TEST_CASE("ckpt import refuses values from which no run can go on", "[cli]") {
  const auto& [file, tensor, words] = GENERATE(table<std::string, std::string, std::string>(
      {{"bias/fp32.pt", "bias", "parameter 'bias' is not finite from element 30 on"},
       {"bias/exp_avg_sq.pt", "exp_avg_sq/bias", "optimizer state 'exp_avg_sq/bias' is NaN from element 30 on"}}));
  const Runs runs;
  REQUIRE(runs.train("like", {"model.layers=1", "train.steps=1", "checkpoint.every=1"}).code == 0);
  fs::copy(import_of("universal"), runs.dir("from"), fs::copy_options::recursive);
  const std::string path = runs.dir("from") + "/zero/" + file;
  const std::vector<char> values = read_safetensors(import_of("universal/expected.safetensors")).at(tensor).bytes;
  std::string text = read_text(path);
  const size_t at = text.find(std::string(values.begin(), values.end()));
  REQUIRE(at != std::string::npos);
  const float nan = std::nanf("");
  text.replace(at + values.size() - sizeof nan, sizeof nan, reinterpret_cast<const char*>(&nan), sizeof nan);
  std::ofstream(path, std::ios::binary) << text;
  const Said said =
      call_ddhost({"ckpt", "import", runs.dir("from"), "--like", runs.step("like", 1), "--out", runs.dir("out")});
  INFO(said.err);
  CHECK(said.code == 1);
  CHECK_THAT(said.err, Catch::Contains(words) && Catch::Contains("import an earlier checkpoint"));
  CHECK(runs.saved("out").empty());
}
