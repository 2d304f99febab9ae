// SPDX-License-Identifier: Apache-2.0
//
// checkpoint.best: the checkpoint of the best evaluation is saved and kept.
#include <algorithm>
#include <catch2/catch.hpp>

#include "cli/checkpoint_runs.hpp"

using namespace ddhost::test;

namespace {

// The step whose evaluation has the lowest, or the highest, loss.
int best_row(const std::string& run_dir, bool highest) {
  std::istringstream in(read_text(run_dir + "/metrics.jsonl"));
  std::vector<std::pair<double, int>> values;
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json row = nlohmann::json::parse(line);
    if (row.contains("val_loss")) values.emplace_back(row.at("val_loss").get<double>(), row.at("step").get<int>());
  }
  REQUIRE(values.size() >= 3);
  const auto first_better = [&](const auto& a, const auto& b) {
    return highest ? a.first > b.first : a.first < b.first;
  };
  return std::min_element(values.begin(), values.end(), first_better)->second;
}

std::string best_of(const Runs& runs, const std::string& name) {
  const fs::path link = runs.dir(name) + "/checkpoints/best";
  return fs::is_symlink(link) ? fs::read_symlink(link).string() : "none";
}

std::string step_name(int step) { return "step-" + std::to_string(step); }

// The loss falls for some steps and rises again, so that the best evaluation is neither the first nor the last.
const Words kFallsAndRises = {"train.eval_every=1", "train.steps=8", "optimizer.lr=0.3", "train.eval_batches=2",
                              "schedule.type=constant"};

Words with(const Words& more) {
  Words words = kFallsAndRises;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

TEST_CASE("the checkpoint of the best evaluation is saved, linked as best and never pruned", "[cli]") {
  const Runs runs;
  const bool highest = GENERATE(false, true);
  const std::string mode = highest ? "checkpoint.best.mode=max" : "checkpoint.best.mode=min";
  const Said said = runs.train("a", with({"checkpoint.best.metric=loss", mode, "checkpoint.every=100",
                                          "checkpoint.keep_last=1", "--save-final", runs.dir("final.st")}));
  INFO(said.err);
  REQUIRE(said.code == 0);
  const int best = best_row(runs.dir("a"), highest);
  REQUIRE(best < 8);  // else the newest would be kept in any case
  CHECK(best_of(runs, "a") == step_name(best));
  CHECK(runs.saved("a") == std::set<std::string>{"latest", "best", step_name(best), "step-8"});
  CHECK_THAT(call_ddhost({"ckpt", "ls", runs.dir("a")}).out, Catch::Contains(step_name(best) + "  best"));
  REQUIRE(call_ddhost({"ckpt", "prune", runs.dir("a"), "--keep-last", "1"}).code == 0);
  CHECK(runs.saved("a").contains(step_name(best)));
  // The link is a checkpoint for every command.
  REQUIRE(call_ddhost({"export", runs.dir("a") + "/checkpoints/best", runs.dir("out")}).code == 0);
  CHECK(read_text(runs.dir("out/model.safetensors")) != read_text(runs.dir("final.st")));
  REQUIRE(call_ddhost({"ckpt", "prune", runs.dir("a"), "--after", "0"}).code == 0);
  CHECK(runs.saved("a") == std::set<std::string>{"latest"});
}

TEST_CASE("a resumed run knows the best evaluation before it", "[cli]") {
  const Runs runs;
  const Words options =
      with({"checkpoint.best={\"metric\": \"loss\"}", "checkpoint.every=1", "checkpoint.keep_last=1"});
  REQUIRE(runs.train("whole", options).code == 0);
  const int best = best_row(runs.dir("whole"), false);
  REQUIRE(best < 7);
  Words again = options;
  again.insert(again.end(), {"--resume", "auto"});
  const auto shortened = [&](const char* steps) {
    Words words = again;
    words.insert(words.end(), {std::string("train.steps=") + steps, "--resume-allow", "train.steps"});
    return words;
  };
  REQUIRE(runs.train("a", shortened("7")).code == 0);
  fs::remove(runs.dir("a") + "/checkpoints/best");  // as if it had been killed before the link was made
  REQUIRE(runs.train("a", shortened("8")).code == 0);
  CHECK(best_of(runs, "a") == step_name(best));
  CHECK(runs.saved("a") == runs.saved("whole"));
  const Said other = runs.train("a", [&] {
    Words words = shortened("9");
    words.push_back("checkpoint.best.mode=max");
    return words;
  }());
  CHECK(other.code == 0);
  CHECK_THAT(other.err + read_text(runs.dir("a") + "/log.txt"), Catch::Contains("begins anew"));
  CHECK(best_of(runs, "a") == "step-9");
}

TEST_CASE("checkpoint.best alone saves at the end too, and goes with train.patience", "[cli]") {
  const Runs runs;
  const Words options = with({"checkpoint.best.metric=loss", "train.patience=2"});
  REQUIRE(runs.train("a", options).code == 0);
  const int best = best_row(runs.dir("a"), false);
  CHECK(best_of(runs, "a") == step_name(best));
  CHECK(read_text(runs.dir("a") + "/checkpoints/latest") == step_name(best + 2) + "\n");
  Words again = options;
  again.insert(again.end(), {"--resume", "auto"});
  REQUIRE(runs.train("a", again).code == 0);
  CHECK(steps_in(read_text(runs.dir("a") + "/metrics.jsonl")).back() == best + 2);
}

TEST_CASE("values of another metric or of other samples are not compared after a resume", "[cli]") {
  const Runs runs;
  const Words options = with({"train.steps=4", "checkpoint.best.metric=loss", "train.patience=3"});
  REQUIRE(runs.train("a", options).code == 0);
  const auto log_after = [&](const char* steps, const Words& more) {
    const size_t before = read_text(runs.dir("a") + "/log.txt").size();
    Words words = options;
    words.insert(words.end(), {"--resume", "auto", std::string("train.steps=") + steps, "--resume-allow",
                               "train.steps,train.patience_mode"});
    words.insert(words.end(), more.begin(), more.end());
    REQUIRE(runs.train("a", words).code == 0);
    return read_text(runs.dir("a") + "/log.txt").substr(before);
  };
  CHECK_THAT(log_after("5", {}), !Catch::Contains("begins anew"));
  CHECK_THAT(log_after("6", {"train.patience_mode=max"}),
             Catch::Contains("train.patience_metric was loss (min) before and is loss (max) now"));
  const std::string fewer =
      log_after("7", {"train.patience_mode=max", "data.micro_batch=1", "train.grad_accum_steps=6"});
  for (const char* option : {"train.patience_metric=loss", "checkpoint.best.metric=loss"})
    CHECK_THAT(fewer, Catch::Contains(std::string(option) + " was evaluated on"));
}

TEST_CASE("a metric for checkpoint.best that no evaluation reports is refused with the ones that are", "[cli]") {
  const Runs runs;
  const auto check_refused = [&](const Words& more, const std::vector<std::string>& words) {
    const Said said = runs.train("a", more);
    INFO(said.err);
    CHECK(said.code == 1);
    CHECK(std::count(said.err.begin(), said.err.end(), '\n') <= 2);
    for (const std::string& word : words) CHECK_THAT(said.err, Catch::Contains(word));
  };
  check_refused({"train.eval_every=1", "checkpoint.best.metric=accuracy"},
                {"checkpoint.best.metric='accuracy'", "they report loss"});
  check_refused({"checkpoint.best.metric=loss"}, {"checkpoint.best.metric=loss", "train.eval_every"});
  check_refused({"train.eval_every=1", "checkpoint.best.metric=loss", "checkpoint.best.mode=least"}, {"min, max"});
}
