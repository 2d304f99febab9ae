// SPDX-License-Identifier: Apache-2.0
//
// What a resumed run says and leaves: the sizes of its micro-batches, a run with no step left, and a run that is refused.
#include <catch2/catch.hpp>
#include <map>

#include "cli/checkpoint_runs.hpp"

using namespace ddhost::test;
namespace fs = std::filesystem;

TEST_CASE("the warning about other bits shows the micro-batches that the steps take", "[cli]") {
  const Runs runs;
  const Words options = {"model.programs=2", "checkpoint.every=2", "data.micro_batch.train=3",
                         "data.micro_batch.second=5"};
  REQUIRE(runs.train("a", options).code == 0);
  const auto warning = [&](const char* name, const Words& more) {
    const Said said = runs.train(name, joined(joined(options, {"--resume", runs.step("a", 4)}), more));
    INFO(said.err);
    CHECK(said.code == 0);
    return said.err;
  };
  CHECK_THAT(warning("ranks", {"--nproc", "1"}),
             Catch::Contains("a step had 2 micro-batches of 5 (second) and 3 (train) samples and has 1 of "
                             "5 (second) and 3 (train) now"));
  CHECK_THAT(warning("program", {"data.micro_batch.second=4"}),
             Catch::Contains("has 2 of 4 (second) and 3 (train) now") && Catch::Contains("the bits will differ"));
  // No step takes the default.
  CHECK_THAT(warning("default", {"data.micro_batch=7"}), !Catch::Contains("bits"));
  CHECK_THAT(warning("eval", {"data.micro_batch.eval=7"}),
             Catch::Contains("that of 'eval' was 12 and is 7") && !Catch::Contains("a step had"));
}

TEST_CASE("the warning shows the micro-batches of phases", "[cli]") {
  const Runs runs;
  const auto phases = [](const std::string& second) {
    return Words{"train.steps=null", "checkpoint.every=1", "checkpoint.keep_last=0", "data.micro_batch=6",
                 R"(train.phases=[{"program": "train", "steps": 2}, {"program": "train", "steps": 4)" + second + "}]"};
  };
  REQUIRE(runs.train("a", phases(R"(, "micro_batch": 4)")).code == 0);
  const Said said = runs.train("b", joined(phases(R"(, "micro_batch": 2)"), {"--resume", runs.step("a", 3)}));
  INFO(said.err);
  CHECK(said.code == 0);
  CHECK_THAT(said.err, Catch::Contains("micro-batches of 6 (train in phase 1) and 4 (train in phase 2) samples") &&
                           Catch::Contains("of 6 (train in phase 1) and 2 (train in phase 2) now"));
}

TEST_CASE("a flag is not taken for the value of the flag before it", "[cli]") {
  for (const Words& words :
       {Words{"--resume", "--dry-run"}, Words{"--strategy", "--dry-run"}, Words{"--config", "--dry-run"},
        Words{"ckpt", "prune", "runs/a", "--after", "--keep-last"}, Words{"export", "a", "b", "--layout", "--help"}}) {
    const Said said = call_ddhost(words);
    INFO(words[words.size() - 2] << ": " << said.err << said.out);
    CHECK(said.code == 2);
    CHECK(said.out.empty());
    CHECK_THAT(said.err, Catch::Contains(words[words.size() - 2]));
  }
  CHECK_THAT(call_ddhost({"--resume", "--dry-run"}).err, Catch::Contains("--resume has no value before '--dry-run'"));
}

TEST_CASE("a text that begins with dashes and is no flag is a value", "[cli]") {
  const TempFolder folder;
  const std::string file = folder.file("w.safetensors");
  for (const std::string& text : {std::string("-- To be"), std::string("--x")}) {
    const Said said = call_ddhost({"generate", "--weights", file, "--prompt", text, "--model", toy_model()});
    INFO(said.err);
    CHECK(said.code == 1);
    CHECK_THAT(said.err, Catch::Contains("w.safetensors") && !Catch::Contains("has no value"));
  }
}

TEST_CASE("a resumed run does not read train.init_from", "[cli]") {
  const Runs runs;
  const Words options = {"checkpoint.every=2"};
  REQUIRE(runs.train("base", options).code == 0);
  const std::string from = "train.init_from=" + runs.dir("base");
  REQUIRE(runs.train("a", joined(options, {from})).code == 0);
  std::filesystem::remove_all(runs.dir("base"));
  for (const auto& [resume, steps] : {std::pair{runs.step("a", 6), "train.steps=8"}, {"auto", "train.steps=10"}}) {
    const Said said =
        runs.train("a", joined(options, {from, "--resume", resume, steps, "--resume-allow", "train.steps"}));
    INFO(said.err);
    CHECK(said.code == 0);
    CHECK_THAT(said.err, !Catch::Contains("is the folder of a run"));
  }
}

TEST_CASE("a run that began with the checkpoint of another run is not begun anew by --resume auto", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", {"checkpoint.every=4"}).code == 0);
  REQUIRE(runs.train("b", {"--resume", runs.step("a", 4)}).code == 0);
  const std::map<std::string, std::string> before = contents_of(runs.dir("b"));
  const Said said = runs.train("b", {"--resume", "auto"});
  INFO(said.err);
  CHECK(said.code == 1);
  CHECK_THAT(said.err,
             Catch::Contains("began with the checkpoint of step 4 of another run") && Catch::Contains("--resume PATH"));
  CHECK(contents_of(runs.dir("b")) == before);
}

TEST_CASE("where all checkpoints are damaged, no sentence speaks of an older one", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", {"checkpoint.every=2"}).code == 0);
  for (const int step : {2, 4, 6})
    if (fs::exists(runs.step("a", step))) std::ofstream(runs.step("a", step) + "/COMPLETE") << "x";
  const Said said = runs.train("a", {"checkpoint.every=2", "--resume", "auto"});
  INFO(said.err);
  CHECK(said.code == 1);
  CHECK_THAT(said.err, Catch::Contains("all checkpoints in") && !Catch::Contains("older checkpoint"));
}

TEST_CASE("a run without checkpoints that is started with --resume auto says when it can't be resumed", "[cli]") {
  const Runs runs;
  CHECK_THAT(runs.train("a", {"--resume", "auto"}).err,
             Catch::Contains("only if it is stopped; give checkpoint.every"));
  CHECK_THAT(runs.train("b", {"--resume", "auto", "checkpoint.on_exit=false"}).err, Catch::Contains("saves none"));
  CHECK_THAT(runs.train("c", {"--resume", "auto", "checkpoint.every=2"}).err,
             !Catch::Contains("give checkpoint.every"));
}

TEST_CASE("a flag that takes a list adds up, and the numbers of ckpt prune are checked in words", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", {"checkpoint.every=3"}).code == 0);
  const Said both = runs.train("a", {"checkpoint.every=3", "--resume", "auto", "--resume-allow", "optimizer.lr",
                                     "--resume-allow", "train.steps", "optimizer.lr=0.02", "train.steps=8"});
  INFO(both.err);
  CHECK(both.code == 0);
  const auto refused = [&](const Words& words, const char* part) {
    const Said said = call_ddhost(joined({"ckpt"}, words));
    INFO(said.err);
    CHECK(said.code == 2);
    CHECK_THAT(said.err, Catch::Contains(part));
  };
  refused({"prune", runs.dir("a"), "--keep-last", "0"}, "0 is less than 1");
  refused({"prune", runs.dir("a"), "--keep-last", "99999999999999999999"}, "has more than 64 bits");
  refused({"prune", runs.dir("a"), "--after", "1.5"}, "'1.5' is no integer");
  refused({}, "ckpt needs an action: ls, show");
  refused({"foo"}, "no action 'foo' of `ddhost ckpt`; it has: ls, show");
  refused({"diff", runs.dir("a")}, "give two folders");
  const Said nowhere = call_ddhost({"ckpt", "verify", runs.dir("nothing")});
  CHECK(nowhere.code == 1);
  CHECK(nowhere.out.empty());
  CHECK_THAT(nowhere.err, Catch::Contains("there is no checkpoint") && !Catch::Contains("damaged"));
}

TEST_CASE("a run with no step left changes no file of its folder, and says so", "[cli]") {
  const Runs runs;
  const Words options = {"checkpoint.every=4", "train.eval_every=1", "train.patience=2", "train.patience_mode=max"};
  const bool ended_by_patience = GENERATE(false, true);
  Words mine = options;
  if (!ended_by_patience) mine.push_back("train.patience=0");
  REQUIRE(runs.train("a", mine).code == 0);
  const std::map<std::string, std::string> before = contents_of(runs.dir("a"));
  const Said said =
      runs.train("a", joined(mine, {"--resume", "auto", "--strategy", "zero2", "--nproc", "1", "run.quiet=false"}));
  INFO(said.err);
  CHECK(said.code == 0);
  CHECK_THAT(said.err, Catch::Contains("nothing is left to train after step ") &&
                           Catch::Contains("config.json and the rows of '") && Catch::Contains("stay as they are"));
  CHECK(said.out.empty());  // no table of times
  CHECK(contents_of(runs.dir("a")) == before);
  // In another folder there is nothing to write either.
  const std::string last = read_text(runs.dir("a") + "/checkpoints/latest");
  const std::string checkpoint = runs.dir("a") + "/checkpoints/" + last.substr(0, last.size() - 1);
  CHECK(runs.train("b", joined(mine, {"--resume", checkpoint})).code == 0);
  CHECK_FALSE(fs::exists(runs.dir("b")));
}

TEST_CASE("a run with no step left still writes the final weights that it is asked for", "[cli]") {
  const Runs runs;
  const Words options = {"checkpoint.every=4"};
  REQUIRE(runs.train("a", options).code == 0);
  const std::map<std::string, std::string> before = contents_of(runs.dir("a"));
  REQUIRE(runs.train("a", joined(options, {"--resume", "auto", "--save-final", runs.dir("w.st")})).code == 0);
  REQUIRE(call_ddhost({"export", runs.step("a", 6), runs.dir("out")}).code == 0);
  CHECK(read_text(runs.dir("w.st")) == read_text(runs.dir("out") + "/model.safetensors"));
  CHECK(contents_of(runs.dir("a")) == before);
  const std::string inside = runs.dir("b") + "/w.safetensors";
  REQUIRE(runs.train("b", joined(options, {"--resume", runs.step("a", 6), "--save-final", inside})).code == 0);
  CHECK(read_text(inside) == read_text(runs.dir("w.st")));
}

TEST_CASE("a new run of no steps keeps its folder", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", {"train.steps=0"}).code == 0);
  CHECK(fs::exists(runs.dir("a") + "/config.json"));
  CHECK_THAT(read_text(runs.dir("a") + "/metrics.jsonl"), Catch::Contains("summary"));
}

TEST_CASE("a run that is refused leaves nothing that was not there", "[cli]") {
  const Words why = GENERATE(values<Words>(
      {{"data.order=/no/such/file"},
       {"train.init_from=/no/such/file"},
       {"train.eval_every=1", "checkpoint.best.metric=accuracy"},
       {"model.metrics=2", "model.metric_name=grad_norm"},
       {"train.programs=[\"none\"]"},
       {"--monitor", "csv", "--comm", "loop", "schedule.type=plateau", "train.eval_every=0", "model.programs=2"},
       {"--resume", "/no/such/checkpoint"}}));
  const TempFolder folder;
  INFO(why.front());
  const auto refused = [&](const Words& more) {
    Process process(joined(joined({"--model", toy_model(), "train.steps=2", "--nproc", "2"}, why), more),
                    [&] { static_cast<void>(chdir(folder.path().c_str())); });
    CHECK(process.wait() == 1);
    return process.err();
  };
  INFO(refused({}));
  CHECK(fs::is_empty(folder.path()));
  INFO(refused({"run.dir=" + folder.file("deep/below/run")}));
  CHECK(fs::is_empty(folder.path()));
  // What was there stays.
  fs::create_directories(folder.file("mine"));
  std::ofstream(folder.file("mine/notes.txt")) << "";
  refused({"run.dir=" + folder.file("mine")});
  CHECK(contents_of(folder.path()) == std::map<std::string, std::string>{{folder.file("mine/notes.txt"), ""}});
}

TEST_CASE("a resume that is refused leaves the run as it was", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", {"checkpoint.every=4"}).code == 0);
  const std::map<std::string, std::string> before = contents_of(runs.dir("a"));
  for (const Words& why : {Words{"optimizer.lr=0.5"}, Words{"--optimizer", "adam"},
                           Words{"train.steps=9", "--resume-allow", "train.steps", "train.eval_every=1",
                                 "checkpoint.best.metric=accuracy"},
                           Words{"train.steps=5", "--resume-allow", "train.steps"},
                           Words{"train.steps=9", "--resume-allow", "train.steps", "--monitor",
                                 "tensorboard," + test_plugin("best_loss"), "monitor.best_loss.file=no/such/file"}}) {
    const Said said = runs.train("a", joined({"checkpoint.every=2", "--resume", "auto", "--monitor", "csv"}, why));
    INFO(said.err);
    CHECK(said.code == 1);
    CHECK(contents_of(runs.dir("a")) == before);
  }
}
