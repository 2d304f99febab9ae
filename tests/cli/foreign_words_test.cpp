// SPDX-License-Identifier: Apache-2.0
//
// Words of other launchers, trainers and scripts on the command line: each is taken, has no effect and is named once, or is
// refused with the cure.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fixtures/harness/built.hpp"
#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost::test;
using Json = nlohmann::ordered_json;

namespace {

using WordList = std::vector<std::string>;
struct Said {
  int code;
  std::string out, err;
};

Said call(const WordList& words, const std::vector<std::pair<std::string, std::string>>& variables = {}) {
  const TempFolder folder;
  WordList all = {"--dry-run", "--model", toy_model(), "--device", "cpu", "run.dir=" + folder.file("run")};
  all.insert(all.end(), words.begin(), words.end());
  Process process(all, [&] {
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  });
  const int code = process.wait(std::chrono::seconds(60));
  return {code, process.out(), process.err()};
}

Json config_of(const WordList& words, const std::vector<std::pair<std::string, std::string>>& variables = {}) {
  const Said said = call(words, variables);
  INFO(said.err);
  REQUIRE(said.code == 0);
  return Json::parse(said.out);
}

void check_refused(const WordList& words, const WordList& wanted) {
  const Said said = call(words);
  INFO(words.front() << "\nexit " << said.code << "\n" << said.err);
  CHECK(said.code == 2);
  CHECK(std::count(said.err.begin(), said.err.end(), '\n') == 1);
  for (const std::string& word : wanted) CHECK_THAT(said.err, Catch::Contains(word));
}

}  // namespace

TEST_CASE("values of TrainingArguments become options", "[cli]") {
  const Json config = config_of({"--optim",
                                 "sgd",
                                 "--weight_decay",
                                 "0.1",
                                 "--max_grad_norm",
                                 "0.5",
                                 "--max_steps",
                                 "90",
                                 "--warmup_ratio",
                                 "0.05",
                                 "--lr_scheduler_type",
                                 "linear",
                                 "--eval_strategy",
                                 "steps",
                                 "--eval_steps",
                                 "30",
                                 "--save_strategy=epoch",
                                 "--save_total_limit",
                                 "3",
                                 "--report_to",
                                 "tensorboard",
                                 "--dataloader_num_workers",
                                 "2",
                                 "--run_name",
                                 "first",
                                 "--gradient_checkpointing",
                                 "True",
                                 "--resume_from_checkpoint",
                                 "False",
                                 "--per-device-train-batch-size=5"});
  CHECK(config["optimizer"]["plugin"] == "sgd");
  CHECK(config["optimizer"]["weight_decay"] == 0.1);
  CHECK(config["train"]["clip_norm"] == 0.5);
  CHECK(config["schedule"]["warmup_steps"] == 5);  // 4.5 is rounded up
  CHECK(config["schedule"]["warmup_from_zero"] == true);
  CHECK(config["train"]["eval_every"] == 30);
  CHECK(config["checkpoint"]["every_epochs"] == 1);
  CHECK(config["checkpoint"]["keep_last"] == 3);
  CHECK(config["monitor"]["plugins"] == Json({"jsonl", "tensorboard"}));
  CHECK(config["data"]["workers"] == 2);
  CHECK(config["run"]["name"] == "first");
  CHECK(config["train"]["recompute"] == 1);
  CHECK(config["run"]["resume"] == "none");
  CHECK(config["data"]["micro_batch"] == 5);
}

TEST_CASE("a switch has the truth values of Python's parsers, and no others", "[cli]") {
  const auto compute = [](const WordList& words) { return config_of(words)["precision"]["compute"]; };
  for (const char* off : {"no", "NO", "false", "False", "f", "n", "0"}) {
    CHECK(compute({"--bf16=" + std::string(off)}) == "fp32");
    CHECK(compute({"--bf16", off}) == "fp32");
    CHECK(config_of({"--adafactor", off, "--amp=" + std::string(off), "train.steps=3"})["train"]["steps"] == 3);
  }
  for (const char* on : {"yes", "true", "True", "t", "Y", "1"}) {
    CHECK(compute({"--bf16=" + std::string(on)}) == "bf16");
    CHECK(compute({"--bf16", on}) == "bf16");
  }
  check_refused({"--bf16=off"}, {"--bf16 'off' is neither true nor false"});
  check_refused({"--bf16", "nonsense"}, {"--bf16 'nonsense' is neither true nor false"});
  check_refused({"--gradient-checkpointing=none"}, {"--gradient-checkpointing 'none'"});
  check_refused({"--tpu", "1"}, {"--tpu needs devices"});
}

TEST_CASE("the dtype of sums follows the precision that the line gives", "[cli]") {
  const TempFolder folder;
  const auto write = [&](const char* name, const std::string& more) {
    std::ofstream(folder.file(name)) << R"({"train_micro_batch_size_per_gpu": 2)" << more << "}";
    return folder.file(name);
  };
  const std::string bf16 = write("bf16.json", R"(, "bf16": {"enabled": true})"), plain = write("plain.json", "");
  const auto dtypes = [&](const std::string& file, const WordList& more) {
    WordList words = {"--deepspeed", file};
    words.insert(words.end(), more.begin(), more.end());
    const Json precision = config_of(words)["precision"];
    return precision["compute"].get<std::string>() + " " + precision["reduce_dtype"].get<std::string>();
  };
  CHECK(dtypes(bf16, {}) == "bf16 bf16");
  CHECK(dtypes(bf16, {"--mixed_precision", "no"}) == "fp32 fp32");
  CHECK(dtypes(bf16, {"--fp16"}) == "fp16 fp32");
  CHECK(dtypes(plain, {"--bf16"}) == "bf16 bf16");
  CHECK(dtypes(plain, {"--bf16", "precision.reduce_dtype=fp32"}) == "bf16 fp32");
  CHECK(dtypes(plain, {"--bf16", "False"}) == "fp32 fp32");
  check_refused({"--deepspeed", bf16, "--bf16", "False"},
                {"bf16.json', line 1", "--bf16 False", "leave one of them out"});
  std::ofstream(folder.file("a.yaml")) << "distributed_type: FSDP\nmixed_precision: bf16\n";
  const Json fsdp = config_of({"--config_file", folder.file("a.yaml"), "--mixed_precision", "no"})["precision"];
  CHECK(fsdp["compute"] == "fp32");
  CHECK(fsdp["reduce_dtype"] == "fp32");
  check_refused({"--bf16", "--fp16"}, {"--bf16 and --fp16 exclude each other"});
  CHECK(config_of({"--bf16", "--bf16", "--fp16=0"})["precision"]["compute"] == "bf16");
}

TEST_CASE("numbers may be written as Python takes them", "[cli]") {
  const Json config = config_of({"--lr", ".5", "--weight_decay", ".01", "--adam_beta2", ".95", "--max_grad_norm", "1.",
                                 "--max_steps", "100", "--warmup_ratio", ".03", "--run_name", ".5"});
  CHECK(config["optimizer"]["lr"] == 0.5);
  CHECK(config["optimizer"]["weight_decay"] == 0.01);
  CHECK(config["optimizer"]["betas"] == Json({0.9, 0.95}));
  CHECK(config["train"]["clip_norm"] == 1.0);
  CHECK(config["schedule"]["warmup_steps"] == 3);
  CHECK(config["run"]["name"] == ".5");
  CHECK(config_of({"--learning-rate=5.E-5"})["optimizer"]["lr"] == 5e-5);
  for (const char* text : {"5.E", ".", "-", "1.5.2"}) {
    const auto said = call({"--lr=" + std::string(text)});
    CHECK(said.code == 1);
    CHECK_THAT(said.err, Catch::Contains("optimizer.lr = \"" + std::string(text) + "\"") && Catch::Contains("number"));
  }
}

TEST_CASE("words that another word makes idle have no effect in any order", "[cli]") {
  const auto with = [](const WordList& a, const WordList& b, bool is_first) {
    WordList words = is_first ? a : b;
    words.insert(words.end(), is_first ? b.begin() : a.begin(), is_first ? b.end() : a.end());
    return config_of(words);
  };
  for (const bool is_first : {true, false}) {
    CHECK(with({"--save_strategy", "no"}, {"--save_steps", "5"}, is_first)["checkpoint"]["every"] == 0);
    const Json epochs = with({"--save-strategy=epoch"}, {"--save_steps", "5"}, is_first);
    CHECK(epochs["checkpoint"]["every_epochs"] == 1);
    CHECK(epochs["checkpoint"]["every"] == config_of({})["checkpoint"]["every"]);
    CHECK(with({"--eval_strategy", "no"}, {"--eval_steps", "5"}, is_first)["train"]["eval_every"] == 0);
    CHECK(with({"--eval_strategy", "epoch"}, {"--eval_steps", "5"}, is_first)["train"]["eval_every_epochs"] == 1);
    CHECK(with({"--zero_stage", "2"}, {"--offload_param_device", "cpu"}, is_first)["strategy"]["plugin"] == "zero2");
    CHECK(with({"--zero_stage", "3"}, {"--offload_param_device", "cpu"}, is_first)["strategy"]["plugin"] ==
          "zero3_offload");
    CHECK(with({"--lr_scheduler_type", "constant"}, {"--warmup_steps", "5"}, is_first)["schedule"]["warmup_steps"] ==
          0);
  }
  CHECK(config_of({"--save_strategy", "no", "--save_strategy", "steps", "--save_steps", "5"})["checkpoint"]["every"] ==
        5);
  CHECK(config_of({"--zero_stage", "3"})["strategy"]["plugin"] == "zero3");
  check_refused({"--zero_stage", "7"}, {"--zero_stage '7'", "give one of 0, 1, 2, 3"});
  check_refused({"--mixed_precision", "fp8"}, {"--mixed_precision 'fp8' computes in 8 bits"});
}

TEST_CASE("values of words without effect may be lists, key=value or options of ssh", "[cli]") {
  const auto steps = [](WordList words) {
    words.emplace_back("train.steps=3");
    return config_of(words)["train"]["steps"];
  };
  CHECK(steps({"--label_names", "a", "b", "c"}) == 3);
  CHECK(steps({"--rdzv_conf", "timeout=900", "--env", "A=B"}) == 3);
  CHECK(steps({"--launcher_args", "-p 22"}) == 3);
  CHECK(config_of({"--rdzv_conf", "optimizer=sgd"})["optimizer"]["plugin"] == "sgd");
  CHECK(config_of({"--report_to", "[\"wandb\"]"})["monitor"]["plugins"] == Json({"jsonl", "wandb"}));
  CHECK(config_of({"--report_to", "[wandb,tensorboard]"})["monitor"]["plugins"] ==
        Json({"jsonl", "wandb", "tensorboard"}));
  check_refused({"--role", "a", "train.py"}, {"'train.py' is a script"});
}

TEST_CASE("a version fits a file that is given, and a file is for the program that it is given to", "[cli]") {
  const TempFolder folder;
  std::ofstream(folder.file("ds.json")) << R"({"train_micro_batch_size_per_gpu": 2})";
  std::ofstream(folder.file("own.json")) << R"({"train": {"steps": 3}})";
  const auto ends = [](const WordList& words, const char* sentence) {
    Process process(words);
    CHECK(process.wait(std::chrono::seconds(60)) == 2);
    CHECK_THAT(process.err(), Catch::Contains(sentence));
    CHECK(process.out().empty());
  };
  check_refused({"--compat", "deepspeed-0.18"}, {"--compat deepspeed-0.18 fits no file"});
  check_refused({"--deepspeed", folder.file("ds.json"), "--compat", "accelerate-0.15"}, {"fits no file"});
  check_refused({"--compat", "deepspeed-99"}, {"'deepspeed-99' is newer than"});
  ends({"convert", folder.file("ds.json"), "--compat", "accelerate-0.15"}, "fits no file");
  ends({"convert", folder.file("ds.json"), "--to", "deepspeed"}, "leave --to out");
  check_refused({"--deepspeed_config", folder.file("own.json")}, {"of this program", "--config"});
  check_refused({"--deepspeed", folder.file("missing.json")}, {"missing.json"});
  // A complete file of ours comes back as a file that is taken; a strategy that can't be said is refused.
  Process dry({"--dry-run", "--model", toy_model(), "--nproc", "2", "--device", "cpu", "--strategy", "ddp"});
  REQUIRE(dry.wait(std::chrono::seconds(60)) == 0);
  std::ofstream(folder.file("full.json")) << dry.out();
  Process back({"convert", folder.file("full.json"), "--to", "accelerate"});
  REQUIRE(back.wait(std::chrono::seconds(60)) == 0);
  CHECK_THAT(back.out(),
             Catch::Contains("MULTI_CPU") && !Catch::Contains("num_machines") && !Catch::Contains("hostfile"));
  std::ofstream(folder.file("a.yaml")) << back.out();
  CHECK(config_of({"--config_file", folder.file("a.yaml")})["strategy"]["plugin"] == "ddp");
  ends({"convert", folder.file("full.json"), "--to", "accelerate", "strategy.plugin=zero3"},
       "strategy.plugin=\"zero3\"");
}

TEST_CASE("two words that are one option of ours together", "[cli]") {
  CHECK(config_of({"--adam_beta1", "0.8", "--adam_beta2", "0.95", "--adam_epsilon", "1e-6"})["optimizer"]["betas"] ==
        Json({0.8, 0.95}));
  CHECK(config_of({"--adam_beta2", "0.95"})["optimizer"]["betas"] == Json({0.9, 0.95}));
  const TempFolder folder;
  std::ofstream(folder.file("ds.json")) << R"({"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW",
    "params": {"betas": "auto"}}, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}})";
  const Json config = config_of(
      {"--deepspeed", folder.file("ds.json"), "--adam_beta1", "0.7", "--max_steps", "100", "--warmup_ratio", "0.1"});
  CHECK(config["optimizer"]["betas"] == Json({0.7, 0.999}));
  CHECK(config["schedule"]["warmup_steps"] == 10);
}

TEST_CASE("a word without effect is named once, with the reason", "[cli]") {
  const TempFolder folder;
  Process process({"--model",
                   toy_model(),
                   "--nproc",
                   "1",
                   "--device",
                   "cpu",
                   "train.steps=1",
                   "run.dir=" + folder.file("run"),
                   "--tf32",
                   "True",
                   "--logging_steps",
                   "10",
                   "--logging_dir",
                   "logs",
                   "--do_train",
                   "--overwrite_output_dir",
                   "--ddp_timeout",
                   "1800",
                   "--do_train",
                   "--nnodes=1",
                   "--rdzv-backend=c10d",
                   "--standalone"});
  REQUIRE(process.wait(std::chrono::seconds(60)) == 0);
  const std::string err = process.err();
  for (const char* word : {"--tf32", "--logging_steps", "--logging_dir", "--do_train", "--overwrite_output_dir",
                           "--ddp_timeout", "--rdzv-backend", "--standalone"}) {
    const std::string sentence = std::string(word) + " has no effect here: ";
    const size_t at = err.find(sentence);
    INFO(word << "\n" << err);
    REQUIRE(at != std::string::npos);
    CHECK(err.find(sentence, at + 1) == std::string::npos);
  }
}

TEST_CASE("words of --fsdp and --report_to have any order", "[cli]") {
  const auto strategy = [](const WordList& words) { return config_of(words)["strategy"]; };
  const Json whole = strategy({"--fsdp", "full_shard"});
  CHECK(whole["plugin"] == "fsdp");
  CHECK(whole["sharding_strategy"] == "full_shard");
  CHECK(whole["auto_wrap_policy"] == "none");
  const Json wrapped = strategy({"--fsdp", "offload hybrid_shard_zero2 auto_wrap"});
  CHECK(wrapped["sharding_strategy"] == "hybrid_shard_zero2");
  CHECK(wrapped["cpu_offload"] == true);
  CHECK(wrapped["auto_wrap_policy"] == "unit");
  CHECK(strategy({"--fsdp", "auto_wrap", "shard_grad_op", "--bf16"})["sharding_strategy"] == "shard_grad_op");
  CHECK(strategy({"--fsdp", ""})["plugin"] == "ddp");
  check_refused({"--fsdp", "offload"}, {"--fsdp 'offload'", "add full_shard"});
  check_refused({"--fsdp", "half_shard"}, {"--fsdp 'half_shard'", "full_shard"});
  const auto monitors = [](const WordList& words) { return config_of(words)["monitor"]["plugins"]; };
  CHECK(monitors({"--report_to", "wandb"}) == Json({"jsonl", "wandb"}));
  CHECK(monitors({"--report_to", "trackio"}) == Json({"jsonl", "sqlite"}));
  CHECK(monitors({"--report_to", "tensorboard", "wandb", "--seed", "3"}) == Json({"jsonl", "tensorboard", "wandb"}));
  CHECK(monitors({"--report_to=none"}) == config_of({})["monitor"]["plugins"]);
  CHECK(monitors({"--report_to", "neptune"}) == config_of({})["monitor"]["plugins"]);
}

TEST_CASE("steps of TrainingArguments below 1 are parts of the run", "[cli]") {
  CHECK(config_of({"--max_steps", "90", "--save_steps", "0.05"})["checkpoint"]["every"] == 5);
  CHECK(config_of({"--max_steps", "90", "--save_steps", "20"})["checkpoint"]["every"] == 20);
  CHECK(config_of({"--max_steps", "90", "--eval_steps", "0.5"})["train"]["eval_every"] == 45);
  check_refused({"--num_train_epochs", "2", "--save_steps", "0.05"}, {"--save_steps '0.05'", "train.steps=N"});
  // A part of 0 is a warm-up of none, in place of one that a file has.
  const TempFolder folder;
  std::ofstream(folder.file("own.json")) << R"({"schedule": {"type": "linear", "warmup_steps": 7}})";
  const WordList file = {"--config", folder.file("own.json"), "--max_steps", "90"};
  const auto warmup = [&](const WordList& more) {
    WordList words = file;
    words.insert(words.end(), more.begin(), more.end());
    return config_of(words)["schedule"]["warmup_steps"];
  };
  CHECK(warmup({}) == 7);
  CHECK(warmup({"--warmup_ratio", "0"}) == 0);
  CHECK(warmup({"--warmup_ratio", "0.0", "--warmup_steps", "4"}) == 4);
}

TEST_CASE("a schedule of transformers has no warm-up unless one is given", "[cli]") {
  const auto schedule = [](const WordList& words) { return config_of(words)["schedule"]; };
  for (const char* type : {"linear", "cosine"}) {
    CHECK(schedule({"--lr_scheduler_type", type})["warmup_steps"] == 0);
    CHECK(schedule({"--lr_scheduler_type", type})["min_lr_ratio"] == 0);
    CHECK(schedule({"--lr_scheduler_type", type, "--warmup_steps", "5"})["warmup_steps"] == 5);
    CHECK(schedule({"--lr_scheduler_type", type, "schedule.warmup_steps=5"})["warmup_steps"] == 5);
  }
  // Beside a file without a scheduler the warm-up begins at 0, too.
  const TempFolder folder;
  std::ofstream(folder.file("ds.json")) << R"({"train_micro_batch_size_per_gpu": 2})";
  const Json constant = schedule({"--deepspeed", folder.file("ds.json"), "--warmup_steps", "5"});
  CHECK(constant["type"] == "constant");
  CHECK(constant["warmup_steps"] == 5);
  CHECK(constant["warmup_from_zero"] == true);
  const Json cosine = schedule({"--deepspeed", folder.file("ds.json"), "--lr_scheduler_type", "cosine"});
  CHECK(cosine["type"] == "cosine");
  CHECK(cosine["warmup_steps"] == 0);
}

TEST_CASE("families of words are taken by their beginning, and with a value or without", "[cli]") {
  const Json plain = config_of({});
  for (const WordList& words :
       std::vector<WordList>{{"--megatron_lm_tp_degree", "2"},
                             {"--fp8-backend=TE"},
                             {"--fp8_use_autocast_during_eval", "--tpu_use_sudo"},
                             {"--aws_access_key_id", "x"},
                             {"-r", "3", "-t", "3"},
                             {"--log-dir", "logs"},
                             {"--parallelism_config_tp_size", "1"},
                             {"--dynamo_use_regional_compilation", "--no_dataloader_in_order"}}) {
    Json config = config_of(words);
    config["run"]["dir"] = plain["run"]["dir"];
    CHECK(config == plain);
  }
  CHECK(config_of({"--fp8_use_autocast_during_eval", "train.steps=2"})["train"]["steps"] == 2);
  CHECK(config_of({"-t", "train.steps=2"})["train"]["steps"] == 2);
  check_refused({"--parallelism_config_tp_size", "2"}, {"--parallelism_config_tp_size '2'", "leave it out"});
  check_refused({"--offload_param_device", "nvme", "--offload_param_nvme_path"}, {"has no value"});
}

TEST_CASE("a word that can't mean the same is refused with the cure", "[cli]") {
  check_refused({"--optim", "adamw_bnb_8bit"}, {"--optim", "adamw_torch"});
  check_refused({"--warmup_ratio", "1.5"}, {"--warmup_ratio '1.5'", "below 1", "schedule.num_warmup_steps=N"});
  check_refused({"--warmup_ratio", "-0.1"}, {"--warmup_ratio '-0.1'", "from 0"});
  check_refused({"--load_best_model_at_end"}, {"checkpoint.best.metric=loss"});
  check_refused({"--auto_find_batch_size", "True"}, {"--fit"});
  check_refused({"--model_name_or_path", "gpt2"}, {"--model", "train.init_from=FOLDER"});
  check_refused({"--learning_rate", "--bf16"}, {"--learning_rate has no value"});
  check_refused({"--adam_beta1", "fast"}, {"--adam_beta1", "no number"});
  check_refused({"-m", "package.train"}, {"-m names a module", "--model", "ddhost compare"});
  check_refused({"--module", "package.train"}, {"--module names a module", "--model"});
  check_refused({"src/train.py", "--lr=1"}, {"'src/train.py' is a script", "--model"});
  check_refused({"--elastic_training"}, {"--resume auto"});
  CHECK_THAT(call({"--num_gpus=0"}).err, Catch::Contains("run.nproc = 0 by --num_gpus is out of range"));
  CHECK_THAT(call({"--max_steps", "0.5"}).err, Catch::Contains("train.steps = 0.5 by --max_steps"));
  CHECK(config_of({"--num_train_epochs", "null", "--max_steps", "2"})["train"]["epochs"].is_null());
}

TEST_CASE("a script is refused where a word of its own is expected, and not as a value", "[cli]") {
  for (const WordList& words :
       std::vector<WordList>{{"--nproc", "2", "train.py"}, {"--bf16", "train.py"}, {"--profile", "train.py"}})
    check_refused(words, {"'train.py' is a script"});
  const TempFolder folder;
  std::ofstream(folder.file("hosts.py")) << "localhost slots=2\n";
  CHECK(config_of({"--ssh-config", folder.file("hosts.py")})["launch"]["ssh_config"] == folder.file("hosts.py"));
  CHECK(config_of({"--output_dir", folder.file("out.py")})["run"]["dir"] == folder.file("out.py"));
  CHECK(config_of({"run.name=a.py"})["run"]["name"] == "a.py");
  const auto said = call({"--data.path", "foo.py"});
  CHECK(said.code == 2);
  CHECK_THAT(said.err, Catch::Contains("data.path") && !Catch::Contains("is a script"));
}

TEST_CASE("a warm-up that is a part of the run is that of transformers, whatever says how long the run is", "[cli]") {
  // 3 epochs of 50 samples, 4 a step, are 38 steps, of which 0.1 are 3.8.
  const TempFolder folder;
  const auto rates = [&](const char* name, const WordList& more) {
    WordList words = {"--model",
                      toy_model(),
                      "--nproc",
                      "2",
                      "--device",
                      "cpu",
                      "model.samples=50",
                      "data.micro_batch=2",
                      "--learning_rate",
                      "1e-3",
                      "run.quiet=true",
                      "--lr_scheduler_type",
                      "linear",
                      "--num_train_epochs",
                      "3.0",
                      "run.dir=" + folder.file(name)};
    words.insert(words.end(), more.begin(), more.end());
    Process process(words);
    const int code = process.wait(std::chrono::seconds(60));
    INFO(process.err());
    REQUIRE(code == 0);
    std::vector<double> out;
    std::ifstream in(folder.file(name) + "/metrics.jsonl");
    for (std::string line; std::getline(in, line);)
      if (const Json row = Json::parse(line); row.contains("lr")) out.push_back(row["lr"]);
    return out;
  };
  const std::vector<double> steps = rates("steps", {"--warmup_steps", "4"});
  REQUIRE(steps.size() == 38);
  CHECK(steps[0] == 0);
  CHECK(steps[4] == 1e-3);
  CHECK(rates("ratio", {"--warmup_ratio", "0.1"}) == steps);
  CHECK(rates("part", {"--warmup_steps", "0.1"}) == steps);  // as newer versions of transformers write it
  CHECK(rates("both", {"--warmup_ratio", "0.5", "--warmup_steps", "4"}) == steps);
}

TEST_CASE("words of Hydra are taken where there is such a key", "[cli]") {
  const Json config = config_of({"training.devices=3", "training.strategy=deepspeed_stage_2",
                                 "training.precision=bf16-mixed", "data.batch_size=6", "+train.clip_norm=2",
                                 "++optimizer.lr=0.25", "hydra.run.dir=runs/h", "optimizer=sgd"});
  CHECK(config["run"]["nproc"] == 3);
  CHECK(config["strategy"]["plugin"] == "zero2");
  CHECK(config["precision"]["compute"] == "bf16");
  CHECK(config["data"]["micro_batch"] == 6);
  CHECK(config["train"]["clip_norm"] == 2.0);
  CHECK(config["optimizer"]["lr"] == 0.25);
  CHECK(config["optimizer"]["plugin"] == "sgd");
  check_refused({"~schedule"}, {"'~schedule' removes a key", "--dry-run"});
  check_refused({"--multirun", "optimizer.lr=1,2"}, {"ddhost compare"});
  check_refused({"training.strategy=bagua"}, {"training.strategy 'bagua'", "deepspeed_stage_2"});
}

TEST_CASE("an object that chooses the strategy in a file is taken", "[cli]") {
  const TempFolder folder;
  std::ofstream(folder.file("t.json")) << R"({"training": {"strategy": {"type": "deepspeed",
    "config": {"stage": 2, "offload_optimizer": true, "offload_parameters": false}}, "devices": 2}})";
  const Json config = config_of({"--config", folder.file("t.json")});
  CHECK(config["strategy"]["plugin"] == "zero2");
  CHECK(config["strategy"]["offload_optimizer"]["device"] == "cpu");
  CHECK(config["run"]["nproc"] == 2);
}

TEST_CASE("ports, addresses and numbers of hosts of launchers are ours", "[cli]") {
  CHECK(config_of({"--master_port", "29500"})["launch"]["ports"] ==
        config_of({"launch.ports=29500"})["launch"]["ports"]);
  CHECK(config_of({"--master-port=29500"})["launch"] == config_of({"launch.ports=29500"})["launch"]);
  // DeepSpeed's number of GPUs is that of each host.
  const TempFolder folder;
  std::ofstream(folder.file("hosts")) << "node1 slots=8\nnode2 slots=8\n";
  CHECK(config_of({"--hostfile", folder.file("hosts"), "--num_gpus", "4"})["run"]["nproc"] == 8);
  const Words exported = {"--hostfile", folder.file("hosts"), "--export", "HF_HOME,SEED*", "--export", "TOKEN"};
  CHECK(config_of(exported)["launch"]["export"] == nlohmann::json({"HF_HOME", "SEED*", "TOKEN"}));
  CHECK(config_of({"-hostfile=" + folder.file("hosts"), "--num_nodes=1", "--num_gpus=4"})["run"]["nproc"] == 4);
  CHECK(config_of({"-H", folder.file("hosts"), "--num_gpus", "4", "-e", "node2"})["run"]["nproc"] == 4);
  CHECK(config_of({"-H", folder.file("hosts"), "-i", "node1:0,1@node2"})["run"]["nproc"] == 10);
  CHECK(config_of({"-q"})["run"]["quiet"] == true);
  CHECK(config_of({"--hostfile", folder.file("hosts"), "--nnodes=1"})["run"]["nproc"] == 8);
  CHECK(config_of({"--hostfile", folder.file("hosts"), "--num_machines=1"})["run"]["nproc"] == 8);
  CHECK(config_of({"--num_gpus=4"})["run"]["nproc"] == 4);
  CHECK(config_of({"--num_machines", "1", "--num_processes", "4"})["run"]["nproc"] == 4);
  CHECK(config_of({"--nnodes=1", "--nproc-per-node=auto", "--node-rank=0"})["launch"] == config_of({})["launch"]);
}

TEST_CASE("variables that scripts read are read, named, and lose against words", "[cli]") {
  const std::vector<std::pair<std::string, std::string>> variables = {{"BATCH_SIZE", "7"}, {"EPOCHS", "2"}};
  const Json config = config_of({}, variables);
  CHECK(config["data"]["micro_batch"] == 7);
  CHECK(config["train"]["epochs"] == 2);
  const Json words = config_of({"data.micro_batch=3", "train.steps=4"}, variables);
  CHECK(words["data"]["micro_batch"] == 3);
  CHECK(words["train"]["steps"] == 4);
  const TempFolder folder;
  Process process(
      {"--model", toy_model(), "--nproc", "1", "--device", "cpu", "train.steps=1", "run.dir=" + folder.file("run")},
      [] { setenv("BATCH_SIZE", "7", 1); });
  REQUIRE(process.wait(std::chrono::seconds(60)) == 0);
  CHECK_THAT(process.err(), Catch::Contains("BATCH_SIZE=7 of the environment gives data.micro_batch=7"));
}
