// SPDX-License-Identifier: Apache-2.0
//
// The command line replaces what a file says: plugins, whose options in the file then count no more, and the length of the
// run. A line names what is not used, and the run is the one that the rest describes.
#include <catch2/catch.hpp>
#include <sstream>

#include "fixtures/harness/built.hpp"
#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;
using Catch::Contains;
using nlohmann::json;

namespace {

// The words of a command that reads `config`.
class WithFile {
 public:
  explicit WithFile(const std::string& text) { std::ofstream(file()) << text; }
  [[nodiscard]] std::string file() const { return folder_.file("c.json"); }
  [[nodiscard]] Words operator()(const Words& words = {}) const { return joined({"--config", file()}, words); }

 private:
  TempFolder folder_;
};

ToyRun toy(const Words& words, const std::string& model = toy_model()) {
  return toy_run(words, {"train.steps=3", "model.samples=100"}, model);
}

// The one line of a run that ended well.
std::string only_line(const ToyRun& run) {
  INFO(run.command << "\n" << run.err);
  CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
  return run.err;
}

void check_same_steps(const ToyRun& a, const ToyRun& b) {
  INFO(a.command << "\n" << b.command);
  for (const char* key : {"loss", "grad_norm", "lr"}) CHECK(a.record.column(key) == b.record.column(key));
}

// The program's own lines, without the table of the plan.
std::string sentences_of(const std::string& err) {
  std::istringstream in(err);
  std::string out;
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("ddhost: ")) out += line + "\n";
  return out;
}

// The effective configuration that a dry run prints, in a folder that stays empty.
struct Dry {
  json config;
  std::string err;
};
Dry dry(const Words& words) {
  const TempFolder folder;
  Process process(joined({"--dry-run", "--nproc", "2", "run.dir=/no/such/folder"}, words),
                  [&] { REQUIRE(chdir(folder.path().c_str()) == 0); });
  const int code = process.wait();
  INFO(process.command() << "\n" << process.err());
  REQUIRE(code == 0);
  CHECK(std::filesystem::is_empty(folder.path()));
  return {json::parse(process.out()), sentences_of(process.err())};
}
Dry dry_toy(const Words& words) { return dry(joined({"--model", toy_model()}, words)); }

constexpr const char* kAdamW = R"({
  "optimizer": {"plugin": "adamw", "lr": 0.05, "betas": [0.8, 0.9], "weight_decay": 0.3},
  "schedule": {"type": "cosine", "warmup_steps": 2}})";

}  // namespace

TEST_CASE("another optimizer has none of the file's options, and one line names them", "[cli]") {
  const WithFile with(kAdamW);
  const std::string outside = test_plugin("bad_optimizer");  // an outside plugin has an id that the build does not know
  for (const std::string& optimizer : {std::string("sgd"), std::string("muon"), outside}) {
    const ToyRun run = ran(toy(with({"--optimizer", optimizer})));
    CHECK_THAT(only_line(run), Contains("replaces 'adamw' of '" + with.file() + "'") &&
                                   Contains("(optimizer.lr, optimizer.betas, optimizer.weight_decay)"));
    check_same_steps(run, ran(toy({"--optimizer", optimizer, "schedule.type=cosine", "schedule.warmup_steps=2"})));
  }
}

TEST_CASE("another schedule has none of the file's options", "[cli]") {
  const WithFile with(kAdamW);
  const Words adamw = {"optimizer.lr=0.05", "optimizer.betas=[0.8,0.9]", "optimizer.weight_decay=0.3"};
  for (const std::string& schedule : {std::string("plateau"), std::string("OneCycleLR"), test_plugin("halving")}) {
    const ToyRun run = ran(toy(with({"--schedule", schedule})));
    CHECK_THAT(only_line(run), Contains("replaces 'cosine'") && Contains("(schedule.warmup_steps)"));
    check_same_steps(run, ran(toy(joined(adamw, {"--schedule", schedule}))));
  }
}

TEST_CASE("the options on the command line are for the new plugin, and are all checked", "[cli]") {
  const WithFile with(kAdamW);
  const ToyRun run = ran(toy(with({"--optimizer", "sgd", "optimizer.lr=0.2", "optimizer.momentum=0.5"})));
  CHECK_THAT(only_line(run), Contains("(optimizer.betas, optimizer.weight_decay)"));
  check_same_steps(
      run, ran(toy({"--optimizer", "sgd", "optimizer.lr=0.2", "optimizer.momentum=0.5", "schedule.warmup_steps=2"})));
  check_refused(toy(with({"--optimizer", "sgd", "optimizer.betas=[0.8,0.9]"})),
                {"unknown key 'optimizer.betas' on the command line for optimizer 'sgd'"});
  CHECK(ran(toy(with({"--optimizer", "sgd", "optimizer.betas=null"}))).code == 0);  // as before there was this rule
}

TEST_CASE("the plugin of the file under another name keeps the file's options", "[cli]") {
  const WithFile with(kAdamW);
  const ToyRun as_it_is = ran(toy(with()));
  for (const Words& words : {Words{"--optimizer", "adamw"}, Words{"--optimizer", plugin_file("adamw")},
                             Words{"optimizer.plugin=" + plugin_file("adamw") + ":adamw"}}) {
    const ToyRun run = ran(toy(with(words)));
    CHECK(run.err.empty());
    check_same_steps(run, as_it_is);
  }
  const WithFile mistyped(R"({"optimizer": {"plugin": "adamw", "bettas": [0.8, 0.9]}})");
  check_refused(toy(mistyped({"--optimizer", "adamw"})), {"unknown key 'optimizer.bettas'", mistyped.file()});
  const WithFile one_cycle(R"({"schedule": {"type": "OneCycleLR", "pct_start": 0.5}})");
  CHECK(ran(toy(one_cycle({"--schedule", "one_cycle"}))).err.empty());
}

TEST_CASE("a file that names no plugin gives options for any", "[cli]") {
  const WithFile with(R"({"optimizer": {"lr": 0.2, "momentum": 0.5}})");
  const ToyRun run = ran(toy(with({"--optimizer", "sgd"})));
  CHECK(run.err.empty());
  check_same_steps(run, ran(toy({"--optimizer", "sgd", "optimizer.lr=0.2", "optimizer.momentum=0.5"})));
  check_refused(toy(with({"--optimizer", "adam"})), {"unknown key 'optimizer.momentum' in", "optimizer 'adam'"});
}

TEST_CASE("null for the plugin takes the default one, without the options of the file's", "[cli]") {
  const WithFile with(R"({"optimizer": {"plugin": "sgd", "momentum": 0.5}})");
  const ToyRun run = ran(toy(with({"optimizer.plugin=null"})));
  CHECK_THAT(only_line(run), Contains("optimizer 'adamw' replaces 'sgd'") && Contains("(optimizer.momentum)"));
  check_same_steps(run, ran(toy({})));
}

TEST_CASE("strategy, device, model and transport are replaced with their options; the host's stay", "[cli]") {
  const WithFile with(R"({
    "strategy": {"plugin": "zero2", "reduce_bucket_size": 1000}, "device": {"plugin": "sim", "capacity_bytes": 16777216},
    "comm": {"plugin": "loop", "windows": "copy"}, "model": {"width": 6, "plugin": ")" +
                      toy_model() + "\"}}");
  const Dry swapped =
      dry(with({"--strategy", "ddp", "--device", "cpu", "--comm", "shm", "--model", test_plugin("bad_model")}));
  for (const char* name : {"strategy.reduce_bucket_size", "device.capacity_bytes", "model.width"})
    CHECK_THAT(swapped.err, Contains(name));
  CHECK(std::count(swapped.err.begin(), swapped.err.end(), '\n') == 3);
  CHECK(swapped.config == dry({"--strategy", "ddp", "--device", "cpu", "--comm", "shm", "comm.windows=copy", "--model",
                               test_plugin("bad_model")})
                              .config);
  const Dry kept = dry(with());
  CHECK(kept.err.empty());
  CHECK(kept.config.at("model").at("width") == 6);
  CHECK(kept.config.at("strategy").at("reduce_bucket_bytes") == 4000);
}

TEST_CASE("the options of monitors that the run does not have are not used", "[cli]") {
  const std::string best_loss = test_plugin("best_loss");
  const WithFile with(R"({"monitor": {"best_loss": {"file": "low.txt"}, "plugins": ["jsonl", ")" + best_loss + "\"]}}");
  const Dry without = dry_toy(with({"--monitor", "jsonl"}));
  CHECK_THAT(without.err, Contains("monitor.best_loss.file"));
  CHECK_FALSE(without.config.at("monitor").contains("best_loss"));
  const Dry kept = dry_toy(with({"--monitor", best_loss}));
  CHECK(kept.err.empty());
  CHECK(kept.config.at("monitor").at("best_loss").at("file") == "low.txt");
}

TEST_CASE("further optimizers are replaced in the same way", "[cli]") {
  const WithFile with(R"({"train": {"optimizers": ["optimizer", "optimizer_kg"]},
                          "optimizer_kg": {"plugin": "adam", "betas": [0.8, 0.9]}})");
  const Dry other = dry_toy(with({"optimizer_kg.plugin=sgd"}));
  CHECK_THAT(other.err, Contains("optimizer 'sgd' replaces 'adam'") && Contains("(optimizer_kg.betas)"));
  CHECK(other.config.at("optimizer_kg").at("plugin") == "sgd");
  const Dry one = dry_toy(with({"train.optimizers=[\"optimizer\"]"}));
  CHECK_THAT(one.err, Contains("section 'optimizer_kg' of") && Contains("train.optimizers"));
  CHECK_FALSE(one.config.contains("optimizer_kg"));
  check_refused(toy(with({"train.optimizers=[\"optimizer\"]", "optimizer_kg.lr=1"})), {"section 'optimizer_kg'"});
}

TEST_CASE("the length on the command line replaces that of the file", "[cli]") {
  const WithFile in_phases(R"({
    "train": {"phases": [{"program": "train", "steps": 5, "schedule": "schedule_own"}], "cycles": 2},
    "schedule_own": {"type": "linear", "warmup_steps": 1}})"),
      in_epochs(R"({"train": {"epochs": 50}})"), in_steps(R"({"train": {"steps": 500}})");
  const ToyRun steps = ran(toy_run(in_phases({"train.steps=8"})));
  CHECK(steps.record.steps.size() == 8);
  CHECK_THAT(steps.err, Contains("train.steps=8 on the command line replaces train.phases and train.cycles of '") &&
                            Contains("section 'schedule_own' of '"));
  CHECK(ran(toy_run(in_epochs({"train.steps=8"}))).record.steps.size() == 8);
  const Words samples = {"model.samples=100", "data.micro_batch=5"};
  const ToyRun epochs = ran(toy_run(in_steps({"train.epochs=1"}), samples));
  CHECK(epochs.record.steps.size() == 10);
  CHECK_THAT(only_line(epochs), Contains("train.epochs=1 on the command line replaces train.steps of '"));
  const ToyRun own = ran(toy_run(in_steps({R"(train.phases=[{"program": "train", "steps": 4}])"})));
  CHECK(own.record.steps.size() == 4);
  CHECK_THAT(only_line(own), Contains("replaces train.steps of '"));
  check_refused(toy_run(in_phases({"train.steps=8", "train.epochs=2"})), {"train.steps=8 and train.epochs=2"});
  check_refused(toy_run(in_phases({"train.programs=[\"train\"]"})),
                {"exclude each other", "give train.steps or train.epochs, which replace the file's phases"});
}

TEST_CASE("options that exclude each other: the one on the command line replaces the one of the file", "[cli]") {
  const WithFile with(R"({"train": {"clip_norm": 0.5, "eval_every_epochs": 1}})");
  const Dry run = dry_toy(with({"train.clip_value=0.25", "train.eval_every=2"}));
  CHECK_THAT(run.err, Contains("train.clip_value=0.25 on the command line replaces train.clip_norm of '") &&
                          Contains("train.eval_every=2 on the command line replaces train.eval_every_epochs of '"));
  CHECK(run.config.at("train").at("clip_norm") == 0.0);
  CHECK(run.config.at("train").at("eval_every") == 2);
  check_refused(toy({"train.clip_value=0.25", "train.clip_norm=1"}), {"exclude each other"});
}

TEST_CASE("the configuration of a run with replaced plugins describes the same run", "[cli]") {
  const Dry swapped = dry_toy(WithFile(kAdamW)({"--optimizer", "lion", "--schedule", "wsd"}));
  CHECK(dry(WithFile(swapped.config.dump())()).config == swapped.config);
  const Dry again = dry(WithFile(swapped.config.dump())({"--optimizer", "adamw"}));  // all options are in this file
  CHECK_THAT(again.err, Contains("'lion'") && Contains("optimizer.betas"));
  CHECK(again.config.at("optimizer") == dry_toy({}).config.at("optimizer"));
}
