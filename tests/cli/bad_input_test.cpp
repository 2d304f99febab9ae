// SPDX-License-Identifier: Apache-2.0
//
// Bad input gives one sentence that names the problem and the fix, and a non-zero exit code. There is no hang and no
// core dump.
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <tuple>

#include "fixtures/harness/built.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/listed.hpp"

using namespace ddhost::test;

namespace {

struct Ended {
  int code;
  std::string err, command;
};

Ended run(std::vector<std::string> args) {
  const TempFolder folder;
  args.push_back("run.dir=" + folder.file("run"));
  Process process(args);
  const int code = process.wait(std::chrono::seconds(30));
  return {code, process.err(), process.command()};
}

// It ended by itself, not by a signal, with one sentence that contains all the words.
void check_refused(const Ended& ended, const std::vector<std::string>& words) {
  INFO(ended.command << "\nexit " << ended.code << "\n" << ended.err);
  CHECK(ended.code > 0);
  CHECK(ended.code < 128);
  for (const std::string& word : words) CHECK_THAT(ended.err, Catch::Contains(word));
  CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') <= 2);
}

std::vector<std::string> toy(std::vector<std::string> more) {
  std::vector<std::string> args = {"--model", toy_model(), "--nproc", "2", "train.steps=3", "run.quiet=true"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

}  // namespace

TEST_CASE("the control: good input ends with 0", "[cli]") { CHECK(run(toy({})).code == 0); }

TEST_CASE("a plugin that is missing, no library, or cut short is named", "[cli]") {
  const TempFolder folder;
  check_refused(run(toy({"--strategy", "no/such.so"})), {"no/such.so"});
  check_refused(run(toy({"--strategy", "zero33"})), {"zero33", "zero3"});
  std::ofstream(folder.file("text.so")) << "this is not a shared library";
  check_refused(run(toy({"--strategy", folder.file("text.so")})), {"text.so", "ELF"});
  const std::string whole = read_text(plugin_file("zero1"));
  std::ofstream(folder.file("torn.so"), std::ios::binary) << whole.substr(0, whole.size() / 2);
  check_refused(run(toy({"--strategy", folder.file("torn.so")})), {"torn.so"});
  std::ofstream(folder.file("empty.so"));
  check_refused(run(toy({"--strategy", folder.file("empty.so")})), {"empty.so"});
}

TEST_CASE("a plugin of another kind is refused, and the error names its kind", "[cli]") {
  check_refused(run(toy({"--strategy", plugin_file("adamw")})), {"adamw", "optimizer", "strategy"});
  check_refused(run(toy({"--optimizer", plugin_file("zero1")})), {"zero1", "strategy", "optimizer"});
}

TEST_CASE("a faulty plugin is refused, and the error names the fault", "[cli]") {
  check_refused(run(toy({"--strategy", fake_plugin("plain")})), {"plain.so", "ddh_plugin_entry_0"});
  check_refused(run(toy({"--strategy", fake_plugin("other_major")})), {"other_major.so"});
  check_refused(run(toy({"--strategy", fake_plugin("needs_missing")})), {"needs_missing", "ddh.telepathy/1"});
  check_refused(run(toy({"--strategy", fake_plugin("newer_minor")})), {"newer_minor", "newer"});
  check_refused(run(toy({"--strategy", fake_plugin("same_id_twice")})), {"same_id_twice.so", "left"});
  check_refused(run(toy({"--strategy", fake_plugin("two")})), {"left", "right"});
  check_refused(run(toy({"--strategy", fake_plugin("links_gone")})), {"links_gone.so", "torch_gone"});
  check_refused(run(toy({"--strategy", fake_plugin("flushes_to_zero")})), {"flushes_to_zero.so"});
}

TEST_CASE("a plugin whose create fails or throws ends the run with its sentence", "[cli]") {
  check_refused(run(toy({"--strategy", fake_plugin("create_fails")})), {"create_fails", "the tide is out"});
  check_refused(run(toy({"--strategy", fake_plugin("create_throws")})), {"throws", "ouch"});
  check_refused(run(toy({"--strategy", fake_plugin("entry_throws")})), {"entry_throws.so", "threw"});
}

TEST_CASE("inspect shows what a library is, and why it can't be loaded", "[cli]") {
  const auto inspect = [](const std::string& file) {
    Process process({"inspect", file});
    const int code = process.wait();
    return std::make_pair(code, process.out() + process.err());
  };
  const auto [good_code, good] = inspect(plugin_file("zero3"));
  CHECK(good_code == 0);
  CHECK_THAT(good, Catch::Contains("zero3") && Catch::Contains("strategy") && Catch::Contains("prefetch_units"));
  const auto [bad_code, bad] = inspect(fake_plugin("links_gone"));
  CHECK(bad_code == 1);
  CHECK_THAT(bad, Catch::Contains("links_gone") && Catch::Contains("torch_gone"));
}

TEST_CASE("inspect prints options as Markdown", "[cli]") {
  const auto inspect = [](std::vector<std::string> words) {
    words.insert(words.begin(), "inspect");
    Process process(words);
    return Ended{process.wait(), process.out() + process.err(), process.command()};
  };
  const Ended page = inspect({"--markdown", plugin_file("zero3"), plugin_file("adamw")});
  CHECK(page.code == 0);
  const std::vector<std::string> parts = {
      "# Options\n",
      "\n## Section `run`\n",
      "- `run.name` (string; default `\"\"`)",
      "empty means \\<model>-\\<strategy>.\n",
      "`data.micro_batch` (integer; 1 to 1048576 samples; default `12`): samples per",
      "\n## Section `strategy`, plugin `zero3`\n",
      "- `strategy.prefetch_units` (integer or null; 0 to 64; default `null`): ",
      "\n## Section `optimizer`, plugin `adamw`\n"};
  for (const std::string& part : parts) CHECK_THAT(page.err, Catch::Contains(part));
  CHECK_THAT(page.err, !Catch::Contains("plugin `zero1`"));
  std::istringstream lines(page.err);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 100);

  check_refused(inspect({"--markdown", "zero33"}), {"no plugin file 'zero33'", "ddhost list"});
  check_refused(inspect({"--markdown", fake_plugin("links_gone")}), {"links_gone", "torch_gone"});
  check_refused(inspect({}), {"needs the path of a library"});
  check_refused(inspect({"zero1", "zero2"}), {"give one, or add --markdown"});
}

TEST_CASE("list names every plugin, and dry-run prints a config that is accepted again", "[cli]") {
  Process list({"list"});
  CHECK(list.wait() == 0);
  for (const char* id : {"loop", "shm", "jsonl", "tensorboard"}) CHECK_THAT(list.out(), Catch::Contains(id));
  // Other tests take the names from this list.
  for (const auto& [kind, folder, known] : {std::tuple{"strategy", "strategies", "ddp"},
                                            {"optimizer", "optimizers", "adamw"},
                                            {"schedule", "schedules", "cosine"}}) {
    const Words listed = listed_plugins(kind, known);
    std::set<std::string> sources;
    const std::string plugins = DDHOST_SOURCE_DIR "/plugins/";
    for (const auto& file : std::filesystem::directory_iterator(plugins + folder))
      if (file.path().extension() == ".cpp") sources.insert(file.path().stem());
    CHECK(std::set<std::string>(listed.begin(), listed.end()) == sources);
  }
  Process dry({"--model", toy_model(), "--strategy", "zero3", "train.steps=7", "--dry-run"});
  CHECK(dry.wait() == 0);
  const TempFolder folder;
  std::ofstream(folder.file("again.json")) << dry.out();
  Process again({"--config", folder.file("again.json"), "--dry-run"});
  CHECK(again.wait() == 0);
  CHECK(nlohmann::json::parse(again.out()) == nlohmann::json::parse(dry.out()));
  CHECK(nlohmann::json::parse(dry.out()).at("train").at("steps") == 7);
}

TEST_CASE("an unknown key is refused with the nearest name", "[cli]") {
  check_refused(run(toy({"train.stepz=5"})), {"train.stepz", "train.steps"});
  check_refused(run(toy({"--strategy", "zero3", "strategy.prefetch_unit=5"})),
                {"strategy.prefetch_unit", "prefetch_units"});
  check_refused(run(toy({"trian.steps=5"})), {"trian", "train"});
  check_refused(run(toy({"--wandb_project", "p"})), {"monitor.wandb.project", "add 'wandb' to monitor.plugins"});
}

TEST_CASE("a value of the wrong type or out of range is refused with the legal values", "[cli]") {
  check_refused(run(toy({"train.steps=many"})), {"train.steps", "many", "integer"});
  check_refused(run(toy({"data.micro_batch=0"})), {"data.micro_batch", "1"});
  check_refused(run(toy({"optimizer.lr=-1"})), {"optimizer.lr", "-1"});
  check_refused(run(toy({"schedule.type=sine"})), {"no schedule 'sine'", "cosine"});
  check_refused(run(toy({"schedule.type=WarmupLR", "schedule.warmup_num_steps=0"})),
                {"schedule.warmup_num_steps = 0 on the command line", "above 0"});
  check_refused(run(toy({"train.eval_batches=ALL"})), {"train.eval_batches", "integer or all"});
  check_refused(run(toy({"checkpoint.best=loss"})), {"'checkpoint.best'", "give checkpoint.best.metric"});
  check_refused(run(toy({"schedule.type=linear", "schedule.patience=3"})), {"schedule.patience", "linear"});
  check_refused(run(toy({"precision.compute=fp8"})), {"precision.compute", "fp8", "bf16"});
  check_refused(run(toy({"precision.loss_scale=3"})), {"precision.loss_scale", "3", "power of two"});
  check_refused(run(toy({"precision.loss_scale=1e6"})), {"precision.loss_scale=1000000", "use 1048576"});
  check_refused(run(toy({"precision.loss_scale=1.5e-5"})), {"precision.loss_scale", "use 1.52587890625e-05"});
}

TEST_CASE("an integer beyond 64 bits is out of range, with its limit", "[cli]") {
  const std::string digits = "99999999999999999999999";
  check_refused(
      run(toy({"run.seed=" + digits})),
      {"run.seed = " + digits + " on the command line is out of range (integers end at 9223372036854775807)"});
  check_refused(run(toy({"run.sample_top_k=" + digits})),
                {digits, "is out of range; it takes integer, 0 to 2147483647"});
  check_refused(run(toy({"data.micro_batch.train=" + digits})), {"data.micro_batch.train", "from 1 to 1048576"});
}

// The names are the host's and the plugin's; the sentence about them has the user's.
TEST_CASE("an error about an option has the word that the user wrote for it", "[cli]") {
  const TempFolder folder;
  const std::vector<std::string> offload = {"--strategy", "zero3_offload", "strategy.offload_optimizer.device=nvme"};
  const auto with = [&](const std::string& more) {
    std::vector<std::string> all = offload;
    all.push_back(more);
    return run(toy(all));
  };
  check_refused(with("strategy.offload_optimizer.nvme_path=/no/such/folder"),
                {"strategy.nvme_path (given as strategy.offload_optimizer.nvme_path)"});
  check_refused(with("strategy.offload_optimizer.buffer_count=0"),
                {"strategy.offload_optimizer.buffer_count = 0 on the command line is out of range"});
  std::ofstream(folder.file("c.json"))
      << R"({"strategy": {"plugin": "zero3_offload", "offload_param": {"device": "nvme", "nvme_path": "/no/such"}}})";
  check_refused(run(toy({"--config", folder.file("c.json")})), {"(given as strategy.offload_param.nvme_path)"});
  check_refused(run(toy({"--save-final", folder.path().string()})), {"train.save_final (--save-final) '"});
  check_refused(run(toy({"--ranks-per-node", "3"})), {"run.ranks_per_node=3 (--ranks-per-node) does not divide"});
}

TEST_CASE("a config file that is missing or not JSON is refused with line and column", "[cli]") {
  const TempFolder folder;
  check_refused(run(toy({"--config", folder.file("none.json")})), {"none.json"});
  std::ofstream(folder.file("bad.json")) << "{\n  \"train\": {\"steps\": 3,}\n}\n";
  check_refused(run(toy({"--config", folder.file("bad.json")})), {"bad.json", "2"});
}

TEST_CASE("an impossible number of ranks is refused", "[cli]") {
  check_refused(run({"--model", toy_model(), "--nproc", "-1"}), {"nproc"});
  check_refused(run({"--model", toy_model(), "--nproc", "0"}), {"nproc"});
  check_refused(run({"--model", toy_model(), "--nproc", "99999"}), {"nproc", "1024"});
  check_refused(run({"--model", toy_model(), "--nproc", "two"}), {"nproc"});
}

TEST_CASE("more ranks than the data allows are refused", "[cli]") {
  check_refused(run(toy({"model.samples=7", "data.micro_batch=4"})), {"7 samples", "fewer ranks"});
}

TEST_CASE("an output that can't be written is refused before the training", "[cli]") {
  Process in_file({"--model", toy_model(), "run.dir=/dev/null/run"});
  check_refused({in_file.wait(), in_file.err(), in_file.command()}, {"/dev/null/run"});
  check_refused(run(toy({"--save-final", "/no/such/folder/x.safetensors"})), {"/no/such/folder"});
}

TEST_CASE("a lack of memory for shared windows is an error at the start", "[cli]") {
  const TempFolder folder;
  std::vector<std::string> args =
      toy({"--strategy", "zero1", "model.width=512", "model.hidden=2048", "run.dir=" + folder.file("run")});
  Process process(args, [] {
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
  });
  check_refused({process.wait(), process.err(), process.command()}, {"bytes"});
}

TEST_CASE("initial weights of another model are refused by name and shape", "[cli]") {
  const TempFolder folder;
  const std::string file = folder.file("w.safetensors");
  REQUIRE(run(toy({"--save-final", file})).code == 0);
  CHECK(run(toy({"train.init_from=" + file})).code == 0);
  check_refused(run(toy({"train.init_from=" + file, "model.width=6"})), {"embedding", "[31, 5]", "[31, 6]"});
  check_refused(run(toy({"train.init_from=" + file, "model.layers=4"})), {"layers.3"});
}

TEST_CASE("weights never overwrite an existing file", "[cli]") {
  const TempFolder folder;
  std::ofstream(folder.file("text.txt")) << "precious";
  check_refused(run(toy({"--save-final", folder.file("text.txt")})), {"text.txt", "another name"});
  CHECK(read_text(folder.file("text.txt")) == "precious");
  std::filesystem::create_symlink(folder.file("nowhere"), folder.file("link"));
  check_refused(run(toy({"--save-final", folder.file("link")})), {"link", "another name"});
  check_refused(run(toy({"--save-final", folder.path().string()})), {"folder"});
}

TEST_CASE("the next run can use the folder of a run that failed before its first step", "[cli]") {
  const TempFolder folder;
  const auto train_in = [&](std::vector<std::string> more) {
    more.push_back("run.dir=" + folder.file("r"));
    Process process(toy(more));
    return Ended{process.wait(), process.err(), process.command()};
  };
  check_refused(train_in({"data.order=" + folder.file("none")}), {"none", "data.order"});
  CHECK(train_in({}).code == 0);
  check_refused(train_in({}), {"already holds a run"});
}

TEST_CASE("an impossible evaluation is refused before the training", "[cli]") {
  CHECK(run(toy({"train.eval_every=1", "model.eval_samples=3", "data.micro_batch=4"})).code == 0);
  check_refused(run(toy({"train.eval_every=1", "model.eval_name="})),
                {"'train'", "names no program that evaluates it", "train.eval_every=0"});
  CHECK(run(toy({"model.eval_name="})).code == 0);
  check_refused(run(toy({"model.eval_name=exam"})), {"'train'", "'exam', which is not an eval program"});
  check_refused(run(toy({"model.eval_name=train"})), {"'train', which is not an eval program"});
}

TEST_CASE("names of metrics that rows can't contain are refused", "[cli]") {
  check_refused(run(toy({"model.metrics=2", "model.metric_name=p2"})), {"'train'", "metric 'p2' twice"});
  check_refused(run(toy({"model.metrics=2", "model.metric_name=grad_norm"})), {"'grad_norm'", "the rows of monitors"});
  check_refused(run(toy({"model.metrics=2", "model.metric_name="})), {"'train'", "a metric without a name"});
  check_refused(run(toy({"model.metrics=5000"})), {"5001 metrics", "4096"});
}

TEST_CASE("impossible options of the sampler are refused before the training", "[cli]") {
  check_refused(run(toy({"run.sample_temperature=-1"})), {"run.sample_temperature", "-1"});
  check_refused(run(toy({"run.sample_top_k=-1"})), {"run.sample_top_k", "-1"});
  check_refused(run(toy({"model.sampler=true", "run.sample_condition=4096"})),
                {"run.sample_condition=4096", "'eval'", "4096"});
  check_refused(run(toy({"model.sampler=true", "run.sample_prompt=?"})), {"can't read the prompt '?'"});
}

TEST_CASE("a schedule that reads the loss is refused if several programs are evaluated", "[cli]") {
  check_refused(run(toy({"schedule.type=plateau", "train.eval_every=1", "model.programs=2", "model.evals=2"})),
                {"schedule.type=plateau", "evaluates 2 programs"});
  CHECK(run(toy({"schedule.type=plateau", "train.eval_every=1", "model.programs=2"})).code == 0);
}

TEST_CASE("JSON with duplicate keys or too many levels is refused", "[cli]") {
  const TempFolder folder;
  std::ofstream(folder.file("twice.json")) << R"({"train": {"steps": 1}, "train": {"clip_norm": 2}})";
  check_refused(run(toy({"--config", folder.file("twice.json")})), {"twice.json", "'train'", "twice"});
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  std::ofstream(folder.file("deep.json")) << deep;
  check_refused(run(toy({"--config", folder.file("deep.json")})), {"deep.json", "levels"});
  check_refused(run(toy({"optimizer.betas=" + std::string(60'000, '[')})), {"optimizer.betas", "levels"});
}

TEST_CASE("a flag without a value, a section without a key and an impossible number of ranks per node are refused",
          "[cli]") {
  check_refused(run(toy({"--save-final", "train.steps=1"})), {"--save-final", "train.steps=1"});
  check_refused(run(toy({"--strategy="})), {"--strategy"});
  check_refused(run(toy({"train=3"})), {"'train'", "section"});
  check_refused(run(toy({"train.=3"})), {"'train'", "section"});
  check_refused(run(toy({"--ranks-per-node", "3"})), {"ranks_per_node", "3", "2 ranks"});
}

TEST_CASE("a run fails if its output can't be written", "[cli]") {
  const TempFolder folder;
  Process process({"--dry-run", "--model", toy_model()}, [] {
    const int full = open("/dev/full", O_WRONLY);
    dup2(full, STDOUT_FILENO);
  });
  check_refused({process.wait(), process.err(), process.command()}, {"stdout"});
}
