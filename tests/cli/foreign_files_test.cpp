// SPDX-License-Identifier: Apache-2.0
//
// Configuration files of DeepSpeed and Accelerate on the command line, and `ddhost convert`.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "fixtures/harness/built.hpp"
#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost::test;
using Json = nlohmann::ordered_json;

namespace {

struct Ended {
  int code;
  std::string out, err;
};

Ended run(const std::vector<std::string>& args) {
  Process process(args);
  const int code = process.wait(std::chrono::seconds(60));
  return {code, process.out(), process.err()};
}

// A training of two ranks with the words, and a folder for it.
std::vector<std::string> training(const std::vector<std::string>& words, const std::string& dir) {
  std::vector<std::string> all = {"--model",  toy_model(), "--nproc",       "2",
                                  "--device", "cpu",       "train.steps=4", "run.dir=" + dir};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

// The effective configuration.
Json effective(const std::vector<std::string>& words) {
  const TempFolder folder;
  std::vector<std::string> all = training(words, folder.file("run"));
  all.emplace_back("--dry-run");
  const Ended ended = run(all);
  INFO(ended.err);
  REQUIRE(ended.code == 0);
  Json config = Json::parse(ended.out);
  config["run"].erase("dir");
  return config;
}

std::string write(const TempFolder& folder, const std::string& name, const std::string& text) {
  std::ofstream(folder.file(name)) << text;
  return folder.file(name);
}

// Exit code 2, one sentence with the words, and no run's folder.
void check_refused(const std::vector<std::string>& words, const std::vector<std::string>& wanted) {
  const TempFolder folder;
  const Ended ended = run(training(words, folder.file("run")));
  INFO(words.back() << "\nexit " << ended.code << "\n" << ended.err);
  CHECK(ended.code == 2);
  CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
  for (const std::string& word : wanted) CHECK_THAT(ended.err, Catch::Contains(word));
  CHECK(!std::filesystem::exists(folder.file("run")));
}

std::vector<double> rates(const std::vector<std::string>& words) {
  const TempFolder folder;
  const Ended ended = run(training(words, folder.file("run")));
  INFO(ended.err);
  REQUIRE(ended.code == 0);
  std::vector<double> all;
  std::istringstream lines(read_text(folder.file("run") + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json row = Json::parse(line);
    if (row.contains("lr")) all.push_back(row["lr"].get<double>());
  }
  return all;
}

constexpr const char* kWhole = R"({
  // as a person writes it
  "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 2, "gradient_clipping": 0.5,
  "optimizer": {"type": "Adam", "params": {"lr": 2e-3, "betas": [0.8, 0.99], "weight_decay": 0.1}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 2e-3, "warmup_num_steps": 3}},
  "zero_optimization": {"stage": 2, "overlap_comm": true,},
  "steps_per_print": 10,
})";

}  // namespace

TEST_CASE("a DeepSpeed file is taken by --deepspeed_config, by --deepspeed and by --config", "[cli]") {
  const TempFolder folder;
  const std::string file = write(folder, "ds.json", kWhole);
  const Json config = effective({"--deepspeed_config", file});
  CHECK(config["strategy"]["plugin"] == "zero2");
  CHECK(config["optimizer"]["plugin"] == "adamw");
  CHECK(config["optimizer"]["lr"] == 2e-3);
  CHECK(config["optimizer"]["betas"] == Json({0.8, 0.99}));
  CHECK(config["optimizer"]["decay_groups"] == false);
  CHECK(config["schedule"]["type"] == "warmup");
  CHECK(config["data"]["micro_batch"] == 3);
  CHECK(config["train"]["grad_accum_steps"] == 2);
  CHECK(config["train"]["clip_norm"] == 0.5);
  CHECK(effective({"--deepspeed_config=" + file}) == config);
  CHECK(effective({"--deepspeed", file}) == config);
  CHECK(effective({"--deepspeed", "--deepspeed_config", file}) == config);
  CHECK(effective({"--config", file}) == config);
  CHECK(effective({"--deepspeed"}) == effective({}));
}

TEST_CASE("without a scheduler the rate is constant, and with one it has DeepSpeed's values", "[cli]") {
  const TempFolder folder;
  const std::string constant =
      write(folder, "constant.json", R"({"train_batch_size": 4, "optimizer": {"type": "Adam"}})");
  CHECK(rates({"--deepspeed_config", constant}) == std::vector<double>(4, 1e-3));
  const std::string warmup = write(folder, "warmup.json", kWhole);
  const std::vector<double> rising = rates({"--deepspeed_config", warmup});
  REQUIRE(rising.size() == 4);
  CHECK(rising[0] == 0.0);  // the first two updates run at the lowest rate
  CHECK(rising[1] == 0.0);
  CHECK(rising[2] == Approx(2e-3 * std::log(2) / std::log(3)).epsilon(1e-12));
  CHECK(rising[3] == Approx(2e-3).epsilon(1e-12));
}

TEST_CASE("the command line wins over the file, and a file of ours gives what the other leaves open", "[cli]") {
  const TempFolder folder;
  const std::string file = write(folder, "ds.json", kWhole);
  CHECK(effective({"--deepspeed_config", file, "train.clip_norm=2"})["train"]["clip_norm"] == 2.0);
  CHECK(effective({"--deepspeed_config", file, "--optimizer", "sgd"})["optimizer"]["plugin"] == "sgd");
  const std::string bare = write(folder, "bare.json", R"({"train_batch_size": 4, "zero_optimization": {"stage": 1}})");
  const std::string own =
      write(folder, "own.json", R"({"optimizer": {"plugin": "adamw", "lr": 0.02}, "train": {"clip_norm": 3}})");
  const Json both = effective({"--config", own, "--deepspeed_config", bare});
  CHECK(both["strategy"]["plugin"] == "zero1");
  CHECK(both["optimizer"]["lr"] == 0.02);
  CHECK(both["train"]["clip_norm"] == 3.0);
  CHECK(both["schedule"]["type"] == "constant");
  const std::string open =
      write(folder, "open.json", R"({"train_micro_batch_size_per_gpu": "auto", "gradient_clipping": "auto"})");
  CHECK(effective({"--deepspeed_config", open, "data.micro_batch=5"})["data"]["micro_batch"] == 5);
  CHECK(effective({"--deepspeed_config", open})["data"]["micro_batch"] == 8);
}

TEST_CASE("--compat pins the defaults of a version", "[cli]") {
  const TempFolder folder;
  const std::string file = write(folder, "ds.json", R"({"train_batch_size": 4})");
  CHECK(effective({"--deepspeed_config", file})["train"]["clip_norm"] == 1.0);
  CHECK(effective({"--deepspeed_config", file, "--compat", "deepspeed-0.18"})["train"]["clip_norm"] == 0.0);
  check_refused({"--deepspeed_config", file, "--compat", "deepspeed-new"}, {"NAME-X.Y", "deepspeed"});
  check_refused({"--deepspeed_config", file, "--compat", "other-1.0"}, {"NAME-X.Y"});
}

TEST_CASE("launch takes Accelerate's file, also one that names a DeepSpeed file beside it", "[cli]") {
  const TempFolder folder;
  const std::string plain = write(folder, "a.yaml",
                                  "distributed_type: FSDP # sharded\nmixed_precision: bf16\nnum_processes: 3\n"
                                  "fsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n");
  const TempFolder place;
  const Ended ended = run({"launch", "--config_file", plain, "--model", toy_model(), "--device", "cpu",
                           "run.dir=" + place.file("run"), "--dry-run"});
  INFO(ended.err);
  REQUIRE(ended.code == 0);
  const Json config = Json::parse(ended.out);
  CHECK(config["strategy"]["plugin"] == "fsdp");
  CHECK(config["strategy"]["sharding_strategy"] == "shard_grad_op");
  CHECK(config["precision"]["compute"] == "bf16");
  CHECK(config["run"]["nproc"] == 3);
  write(folder, "ds.json", kWhole);
  const std::string names =
      write(folder, "b.yaml", "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n");
  CHECK(effective({"--config", names})["strategy"]["plugin"] == "zero2");
}

TEST_CASE("a file that can't be taken ends with 2 and one sentence that names file, line and key", "[cli]") {
  const TempFolder folder;
  const auto refused = [&](const std::string& text, const std::vector<std::string>& wanted) {
    std::ofstream(folder.file("f.json"), std::ios::binary) << text;
    std::vector<std::string> all = wanted;
    all.emplace_back("f.json");
    check_refused({"--deepspeed_config", folder.file("f.json")}, all);
  };
  refused("{\"train_batch_size\": 4,\n \"gradient_cliping\": 1}", {"line 2", "gradient_cliping", "gradient_clipping"});
  refused("{\"train_batch_size\": 5}", {"line 1", "train_batch_size", "2 ranks"});
  refused("", {"is empty"});
  refused(std::string("\xFF\xFE{\0}\0", 6), {"UTF-8"});
  refused(std::string(10'000'000, '['), {"more than"});
  refused(std::string(1000, '['), {"64 levels"});
  refused("{\"train_batch_size\": NaN}", {"line 1", "NaN"});
  refused("{\"train_batch_size\": 4, \"optimizer\": {\"type\": \"${OPT}\"}}", {"optimizer.type", "placeholder"});
  check_refused({"--deepspeed_config", folder.file("none.json")}, {"none.json", "exist"});
  check_refused({"--deepspeed_config", folder.path().string()}, {"folder"});
  REQUIRE(mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  check_refused({"--deepspeed_config", folder.file("pipe")}, {"pipe"});
  check_refused({"--deepspeed_config"}, {"no value"});
  write(folder, "a.yaml", "distributed_type: MULTI_GPU\nnum_machines: 2\n");
  check_refused({"--config", folder.file("a.yaml")}, {"launch.num_nodes", "--hostfile FILE"});
}

TEST_CASE("convert writes a configuration of ours that trains the same", "[cli]") {
  const TempFolder folder;
  const std::string file = write(folder, "ds.json", kWhole);
  const Ended text = run({"convert", file, "--nproc", "2"});
  CHECK(text.code == 0);
  CHECK_THAT(text.out, Catch::Contains("// optimizer.params.lr, line 4") && Catch::Contains("(default)") &&
                           Catch::Contains("steps_per_print, line 7"));
  const std::string own = write(folder, "own.json", text.out);
  CHECK(effective({"--config", own}) == effective({"--deepspeed_config", file}));
  const Ended json = run({"convert", "--json", file, "--nproc", "2"});
  const Json all = Json::parse(json.out);
  CHECK(all["config"]["train"]["clip_norm"] == 0.5);
  CHECK(all["refused"].empty());
  const std::string bad =
      write(folder, "bad.json", R"({"train_batch_size": 4, "elasticity": {"enabled": true}, "fp17": 1})");
  const Ended refused = run({"convert", "--json", bad});
  CHECK(refused.code == 2);
  CHECK(Json::parse(refused.out)["refused"].size() == 2);
  CHECK(run({"convert", own}).code == 2);  // a file of ours
  const auto fails = [&](const std::string& name, const std::string& content, const std::string& wanted) {
    const std::string broken = write(folder, name, content);
    const Ended ended = run({"convert", broken});
    CHECK(ended.code == 2);
    CHECK_THAT(ended.err, Catch::Contains("'" + broken + "', line 2: ") && Catch::Contains(wanted));
  };
  fails("broken.json", "{\"train_batch_size\": 4,\n \"x\": [1, }", "where a value should be");
  fails("broken.yaml", "distributed_type: FSDP\n a: : b\n", "YAML");
  check_refused({"--config", folder.file("broken.yaml")}, {"line 2", "YAML"});
}

TEST_CASE("what the command line replaces is named with its own place in the file", "[cli]") {
  const TempFolder folder;
  const std::string file = write(folder, "ds.json", kWhole);
  std::vector<std::string> words = training({"--deepspeed_config", file, "--schedule", "linear"}, folder.file("run"));
  words.emplace_back("--dry-run");
  const Ended ended = run(words);
  CHECK_THAT(ended.err, Catch::Contains("replaces 'warmup' of '" + file + "', line 5 (scheduler.type)"));
}

TEST_CASE("words of other launchers and trainers are taken, with one dash or two, hyphens or underscores", "[cli]") {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--num_gpus=3"}, {"--num_gpus", "3"}, {"-num_gpus", "3"}, {"--num-gpus", "3"}, {"--num_processes", "3"}})
    CHECK(effective(words)["run"]["nproc"] == 3);
  const Json config = effective({"--per_device_train_batch_size", "4", "--learning_rate=2e-4", "--bf16", "True",
                                 "--max_steps", "7", "--lr_scheduler_type", "linear", "--warmup_steps", "3", "--seed",
                                 "5", "--gradient_checkpointing", "--logging_steps", "10"});
  CHECK(config["data"]["micro_batch"] == 4);
  CHECK(config["optimizer"]["lr"] == 2e-4);
  CHECK(config["precision"]["compute"] == "bf16");
  CHECK(config["train"]["steps"] == 7);
  CHECK(config["train"]["recompute"] == 1);
  CHECK(config["run"]["seed"] == 5);
  CHECK(config["schedule"]["type"] == "linear");
  CHECK(config["schedule"]["warmup_steps"] == 3);
  CHECK(config["schedule"]["warmup_from_zero"] == true);
  CHECK(effective({"--bf16", "False"})["precision"]["compute"] == "fp32");
  CHECK(effective({"--fsdp", "full_shard auto_wrap"})["strategy"]["plugin"] == "fsdp");
  const TempFolder folder;
  const Ended hosts = run(training({"-hostfile", folder.file("hosts")}, folder.file("run")));
  CHECK(hosts.code == 1);
  CHECK_THAT(hosts.err, Catch::Contains("hostfile '" + folder.file("hosts") + "' does not exist"));
  check_refused({"train.py"}, {"train.py", "--model"});
  check_refused({"--num_nodes", "2"}, {"launch.num_nodes", "--hostfile FILE"});
  for (const std::string word : {"--nproc_per_node=3", "--nproc-per-node=3", "-nproc_per_node=3"}) {
    const Ended ended =
        run({"--model", toy_model(), "--device", "cpu", "run.dir=" + folder.file("run"), word, "--dry-run"});
    INFO(ended.err);
    REQUIRE(ended.code == 0);
    CHECK(Json::parse(ended.out)["run"]["nproc"] == 3);
  }
  check_refused({"--lr_scheduler_type", "polynomial"}, {"polynomial", "cosine"});
}

TEST_CASE("values of TrainingArguments fill auto", "[cli]") {
  const TempFolder folder;
  const std::string file =
      write(folder, "ds.json", R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
    "bf16": {"enabled": "auto"}})");
  const Json config =
      effective({"--deepspeed", file, "--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "3",
                 "--learning_rate", "1e-4", "--weight_decay", "0.1", "--warmup_steps", "11", "--bf16"});
  CHECK(config["data"]["micro_batch"] == 2);
  CHECK(config["train"]["grad_accum_steps"] == 3);
  CHECK(config["optimizer"]["lr"] == 1e-4);
  CHECK(config["optimizer"]["weight_decay"] == 0.1);
  CHECK(config["schedule"]["warmup_steps"] == 11);
  CHECK(config["precision"]["compute"] == "bf16");
  CHECK(config["precision"]["reduce_dtype"] == "bf16");
}

TEST_CASE("convert --to writes our configuration for another program, and it comes back", "[cli]") {
  const TempFolder folder;
  const std::string file = write(folder, "ds.json", kWhole);
  const std::string own = write(folder, "own.json", run({"convert", file, "--nproc", "2"}).out);
  const Ended back = run({"convert", "--to", "deepspeed", own});
  INFO(back.err);
  REQUIRE(back.code == 0);
  const std::string again = write(folder, "again.json", back.out);
  CHECK(effective({"--deepspeed_config", again}) == effective({"--deepspeed_config", file}));
  CHECK(run({"convert", "--to", "nothing", own}).code == 2);
}
