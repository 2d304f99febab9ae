// SPDX-License-Identifier: Apache-2.0
//
// Commands that start runs of their own, compare, tune and smoke: what they take from configuration files, and what they
// refuse.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <thread>

#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;
using Catch::Contains;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

class Folder {
 public:
  void write(const std::string& name, const json& content) const {
    std::ofstream(folder_.file(name)) << content.dump();
  }
  [[nodiscard]] std::string file(const std::string& name) const { return folder_.file(name); }
  [[nodiscard]] Words compare(const Words& more = {}) const {
    return joined({"compare", "--config", file("run.json"), "--nproc", "2", "--steps", "6", "--rounds", "1", "--out",
                   file("compare"), "--strategies", "ddp,zero1"},
                  more);
  }

 private:
  TempFolder folder_;
};

json toy_config() {
  return {{"model", {{"plugin", toy_model()}}},
          {"train", {{"save_final", "final.safetensors"}, {"eval_every_epochs", 1}}},
          {"checkpoint", {{"every_minutes", 0.001}, {"best", {{"metric", "loss"}}}}},
          {"profile", {{"steps", "20-25"}}},
          {"optimizer", {{"lr", 0.01}}}};
}

}  // namespace

TEST_CASE("a comparison leaves out what a file asks for beside the steps", "[cli]") {
  const Folder in;
  in.write("run.json", toy_config());
  const Said said = call_ddhost(in.compare());
  INFO(said.out << said.err);
  REQUIRE(said.code == 0);
  CHECK(!fs::exists(in.file("final.safetensors")));
  CHECK(!fs::exists(in.file("compare/rounds/case-1-round-1/checkpoints")));
}

TEST_CASE("a comparison finds the steps of each model, also of one whose first short run failed", "[cli]") {
  const Folder in;
  const Words words = {"compare",          "--nproc",      "2",         "--rounds", "1",   "--out",
                       in.file("compare"), "--strategies", "ddp,zero1", "--budget", "20s", "--model"};
  const Words models = joined(words, {toy_model() + "," + test_plugin("toy_features")});
  const auto chosen = [&] { return json::parse(read_text(in.file("compare/compare.json"))).at("chosen_steps"); };
  REQUIRE(call_ddhost(models).code == 0);
  json steps = chosen();
  REQUIRE(steps.size() == 2);
  for (const json& of_model : steps) CHECK((of_model >= 6 && of_model <= 200));
  auto settings = nlohmann::ordered_json::parse(read_text(in.file("compare/compare.json")));
  const std::string lost = steps.begin().key();
  settings["chosen_steps"].erase(lost);
  std::ofstream(in.file("compare/compare.json")) << settings;
  const Said again = call_ddhost(models);
  INFO(again.err);
  REQUIRE(again.code == 0);
  CHECK(chosen().contains(lost));
  settings["chosen_steps"] = 11;
  std::ofstream(in.file("compare/compare.json")) << settings;
  CHECK_THAT(call_ddhost(models).err, Catch::Contains("other settings"));
}

TEST_CASE("a comparison does not go on with another text of its file, or a damaged record", "[cli]") {
  const Folder in;
  json config = toy_config();
  in.write("run.json", config);
  REQUIRE(call_ddhost(in.compare()).code == 0);
  config["optimizer"]["lr"] = 0.02;
  in.write("run.json", config);
  CHECK_THAT(call_ddhost(in.compare()).err, Contains("a comparison with other settings"));
  for (const char* text : {"", "[1]", "{\"cases"}) {
    std::ofstream(in.file("compare/compare.json")) << text;
    const Said damaged = call_ddhost(in.compare());
    CHECK(damaged.code == 1);
    CHECK_THAT(damaged.err, Contains("compare.json' is damaged; give another --out"));
  }
}

TEST_CASE("tune leaves a folder of others alone, and names a strategy that does not exist", "[cli]") {
  const Folder in;
  in.write("run.json", toy_config());
  fs::create_directories(in.file("mine"));
  in.write("mine/x", 1);
  const Words tune = {"tune", "--config", in.file("run.json"), "--nproc", "2", "--out"};
  CHECK_THAT(call_ddhost(joined(tune, {in.file("mine")})).err, Contains("has 'x', which is of no comparison"));
  CHECK(std::distance(fs::directory_iterator(in.file("mine")), fs::directory_iterator()) == 1);
  CHECK_THAT(call_ddhost(joined(tune, {in.file("tune"), "--strategies", "ddp,zero33"})).err,
             Contains("there is no strategy 'zero33'; did you mean 'zero3'?"));
}

TEST_CASE("a comparison looks at its names before it measures, and a list of models takes blanks", "[cli]") {
  const Folder in;
  in.write("run.json", toy_config());
  const Words config = {"compare", "--config", in.file("run.json"), "--out", in.file("compare")};
  const auto refused = [&](const Words& more) {
    const Said said = call_ddhost(joined(config, more));
    CHECK(said.code == 1);
    CHECK(!fs::exists(in.file("compare")));
    return said.err;
  };
  CHECK_THAT(refused({"--strategies", "ddp,zer2"}), Contains("there is no strategy 'zer2'; did you mean 'zero2'?"));
  CHECK_THAT(refused({"--strategies", "ddp", "ZeRO-2"}), Contains("here it is strategy.plugin=zero2"));
  CHECK_THAT(refused({"--strategies", "ddp,zero2", "--model", "gpt,", "nosuch", "train.steps=6"}),
             Contains("there is no model 'nosuch'"));
}

TEST_CASE("comparisons without --out keep out of one another's folders", "[cli]") {
  const TempFolder folder;
  const auto compare = [&](const char* strategies) {
    Process process({"compare", "--model", toy_model(), "--nproc", "2", "--steps", "6", "--rounds", "1", "--strategies",
                     strategies},
                    [&] { REQUIRE(::chdir(folder.path().c_str()) == 0); });
    const int code = process.wait();
    INFO(process.err());
    CHECK(code == 0);
    return process.out() + process.err();
  };
  CHECK_THAT(compare("ddp,zero1"), Contains("runs/compare/compare.md"));
  CHECK_THAT(compare("ddp,zero2"),
             Contains("runs/compare-2/compare.md") && Contains("this one is in 'runs/compare-2'"));
  CHECK_THAT(compare("ddp,zero1"), Contains("runs/compare/compare.md") && Contains("from an earlier command"));
}

TEST_CASE("a comparison under nohup goes on when its terminal is closed", "[cli]") {
  const Folder in;
  in.write("run.json", toy_config());
  Process process(in.compare(), [] { ::signal(SIGHUP, SIG_IGN); });
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (process.err().find("round 1") == std::string::npos && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ::kill(process.pid(), SIGHUP);
  const int code = process.wait();
  INFO(process.err());
  CHECK(code == 0);
}

TEST_CASE("a smoke test takes the file of another program", "[cli]") {
  const Folder in;
  in.write("ds.json", {{"train_micro_batch_size_per_gpu", 3}, {"zero_optimization", {{"stage", 3}}}});
  const Said said = call_ddhost({"smoke", "--model", toy_model(), "--deepspeed_config", in.file("ds.json"), "--nproc",
                                 "2", "--out", in.file("smoke")});
  INFO(said.out << said.err);
  REQUIRE(said.code == 0);
  const json config = json::parse(read_text(in.file("smoke/trained/config.json")));
  CHECK_THAT(config.at("strategy").at("plugin").get<std::string>(), Contains("zero3"));
  CHECK(config.at("data").at("micro_batch") == 3);
}

TEST_CASE("tail --follow prints each row once", "[cli]") {
  const Folder in;
  Process run({"--model", toy_model(), "--nproc", "2", "train.steps=1500", "monitor.every=1", "run.quiet=true",
               "run.sample_tokens=0", "run.dir=" + in.file("run")});
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!fs::exists(in.file("run/metrics.jsonl")) && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const Said tail = call_ddhost({"runs", "tail", in.file("run"), "--follow", "-n", "2", "--json"});
  REQUIRE(run.wait() == 0);
  std::istringstream lines(tail.out);
  int64_t last = 0, rows = 0;
  for (std::string line; std::getline(lines, line); ++rows) {
    const auto step = json::parse(line).at("step").get<int64_t>();
    if (last > 0) CHECK(step == last + 1);
    last = step;
  }
  CHECK(last == 1500);
  CHECK(rows >= 2);
}

TEST_CASE("examples of explain are words that the program takes", "[cli]") {
  for (const char* key :
       {"train.steps", "train.optimizers", "optimizer.betas", "data.micro_batch_of", "profile.steps", "monitor.page",
        "strategy.nvme_path", "strategy.shard_size", "schedule.warmup_steps", "strategy.grad_buffer_bytes",
        "precision.loss_scale", "comm.spin_us", "strategy.reuse_bytes"}) {
    const json said = json::parse(call_ddhost({"explain", key, "--json"}).out);
    Words words;
    std::istringstream example(said.at(0).at("example").get<std::string>());
    for (std::string word; example >> word;) {
      if (word.front() == '\'') word = word.substr(1, word.size() - 2);
      if (word != "ddhost") words.push_back(word);
    }
    INFO(key << ": " << said.at(0).at("example"));
    const Said run = call_ddhost(joined(words, {"--dry-run"}));
    INFO(run.err);
    CHECK(run.code == 0);
  }
}
