// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints on the command line: when they are saved, --resume and its errors, `ddhost ckpt`, `ddhost export`.
#include <catch2/catch.hpp>

#include "cli/checkpoint_runs.hpp"
#include "fixtures/harness/safetensors.hpp"

using namespace ddhost::test;
namespace fs = std::filesystem;

namespace {

const Words kEveryTwo = {"checkpoint.every=2"};

}  // namespace

TEST_CASE("a run saves at the given interval of steps and at its end, and keeps what its options say", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("none").code == 0);
  CHECK(runs.saved("none").empty());
  REQUIRE(runs.train("two", {"checkpoint.every=4"}).code == 0);
  CHECK(runs.saved("two") == std::set<std::string>{"latest", "step-4", "step-6"});
  CHECK(read_text(runs.dir("two") + "/checkpoints/latest") == "step-6\n");
  REQUIRE(runs.train("last", {"checkpoint.every=1", "checkpoint.keep_last=1"}).code == 0);
  CHECK(runs.saved("last") == std::set<std::string>{"latest", "step-6"});
  REQUIRE(runs.train("some", {"checkpoint.every=1", "checkpoint.keep_last=1", "checkpoint.keep_every=2"}).code == 0);
  CHECK(runs.saved("some") == std::set<std::string>{"latest", "step-2", "step-4", "step-6"});
  REQUIRE(runs.train("all", {"checkpoint.every=3", "checkpoint.keep_last=0", "--comm", "loop"}).code == 0);
  CHECK(runs.saved("all") == std::set<std::string>{"latest", "step-3", "step-6"});
}

TEST_CASE("a run saves at the given interval of epochs, and at the end of each phase unless that is switched off",
          "[cli]") {
  const Runs runs;
  // Five steps of 8 are two epochs of 20 samples.
  const Words epochs = {"model.samples=20", "data.micro_batch=4",        "train.epochs=6",
                        "train.steps=null", "checkpoint.every_epochs=2", "checkpoint.keep_last=0"};
  REQUIRE(runs.train("epochs", epochs).code == 0);
  CHECK(runs.saved("epochs") == std::set<std::string>{"latest", "step-5", "step-10", "step-15"});
  const Words phases = {R"(train.phases=[{"program": "train", "steps": 2}, {"program": "train", "steps": 3}])",
                        "train.steps=null", "train.cycles=2", "checkpoint.every=100", "checkpoint.keep_last=0"};
  REQUIRE(runs.train("phases", phases).code == 0);
  CHECK(runs.saved("phases") == std::set<std::string>{"latest", "step-2", "step-5", "step-7", "step-10"});
  Words only_end = phases;
  only_end.push_back("checkpoint.at_phase_end=false");
  REQUIRE(runs.train("end", only_end).code == 0);
  CHECK(runs.saved("end") == std::set<std::string>{"latest", "step-10"});
}

TEST_CASE("a checkpoint is saved at the given interval of minutes", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("clock", {"checkpoint.every_minutes=1e-9", "checkpoint.keep_last=0"}).code == 0);
  CHECK(runs.saved("clock").size() == 7);
}

TEST_CASE("a resumed run appends its metrics to the same files without a duplicate step", "[cli]") {
  const Runs runs;
  const Words monitors = {"--monitor", "jsonl,csv,tensorboard", "train.eval_every=2", "checkpoint.every=2"};
  REQUIRE(runs.train("a", monitors).code == 0);
  fs::remove_all(runs.step("a", 6));  // as if the run had been killed in step 6
  Words again = monitors;
  again.insert(again.end(), {"--resume", "auto"});
  const Said said = runs.train("a", again);
  INFO(said.err);
  REQUIRE(said.code == 0);
  const std::string rows = read_text(runs.dir("a") + "/metrics.jsonl");
  CHECK(steps_in(rows) == std::vector<int>{1, 2, 3, 4, 5, 6});
  CHECK(rows.find("summary") == rows.rfind("{\"summary\"") + 2);
  std::istringstream csv(read_text(runs.dir("a") + "/metrics.csv"));
  std::string steps;
  for (std::string line; std::getline(csv, line);) steps += line.substr(0, line.find(',')) + " ";
  CHECK(steps == "step 1 2 3 4 5 6 ");
  std::istringstream eval(read_text(runs.dir("a") + "/metrics_eval.csv"));
  steps.clear();
  for (std::string line; std::getline(eval, line);) steps += line.substr(0, line.find(',')) + " ";
  CHECK(steps == "step 2 4 6 ");
}

TEST_CASE("a rank that holds every tensor reads each byte once, which the log counts", "[cli]") {
  const Runs runs;
  const Words options = {"checkpoint.every=2", "--strategy", "ddp", "model.buffers=true"};
  REQUIRE(runs.train("a", options).code == 0);
  fs::remove_all(runs.step("a", 6));
  Words again = options;
  again.insert(again.end(), {"--resume", "auto"});
  REQUIRE(runs.train("a", again).code == 0);
  const nlohmann::json manifest = nlohmann::json::parse(read_text(runs.step("a", 4) + "/manifest.json"));
  uint64_t bytes = 0;
  for (const nlohmann::json& tensor : manifest.at("tensors")) bytes += tensor.at("bytes").get<uint64_t>();
  CHECK_THAT(read_text(runs.dir("a") + "/log.txt"),
             Catch::Contains("rank 0 read " + std::to_string(bytes) + " bytes, 1.000 of what it holds"));
}

TEST_CASE("large tensors are the same in every file, and are read back by another strategy", "[cli]") {
  const Runs runs;
  const auto train = [&](const char* name, Words options) {
    options.insert(options.end(), {"model.layers=2", "model.width=512", "model.hidden=4096", "model.deviation=0.02",
                                   "train.steps=2", "data.micro_batch=1", "checkpoint.every=1"});
    const Said run = runs.train(name, options);
    INFO(run.err);
    REQUIRE(run.code == 0);
  };
  const auto same = [&](const std::string& a, const std::string& b) {
    for (const char* file : {"/model.safetensors", "/optimizer.safetensors"})
      if (read_text(a + file) != read_text(b + file)) return false;
    return true;
  };
  train("behind", {"--strategy", "zero2"});
  train("waiting", {"--strategy", "zero3", "checkpoint.async=false"});
  train("limited", {"--strategy", "ddp", "checkpoint.max_bytes_in_flight=20000000"});
  CHECK(fs::file_size(runs.step("behind", 1) + "/optimizer.safetensors") > 60'000'000);
  CHECK(same(runs.step("behind", 1), runs.step("waiting", 1)));
  CHECK(same(runs.step("behind", 1), runs.step("limited", 1)));
  for (const char* name : {"behind", "waiting", "limited"})
    CHECK(call_ddhost({"ckpt", "verify", runs.dir(name)}).code == 0);
  train("again", {"--strategy", "ddp", "--resume", runs.step("waiting", 1)});
  train("again3", {"--strategy", "fsdp", "--resume", runs.step("limited", 1)});
  CHECK(same(runs.step("behind", 2), runs.step("again", 2)));
  CHECK(same(runs.step("behind", 2), runs.step("again3", 2)));
}

TEST_CASE("half a row at the end of metrics.jsonl goes when the run is resumed", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", kEveryTwo).code == 0);
  const std::string file = runs.dir("a") + "/metrics.jsonl", rows = read_text(file);
  const size_t fifth = rows.find("{\"step\":5");
  fs::resize_file(file, fifth + 20);
  fs::remove_all(runs.step("a", 6));
  REQUIRE(runs.train("a", {"checkpoint.every=2", "--resume", "auto"}).code == 0);
  CHECK(steps_in(read_text(file)) == std::vector<int>{1, 2, 3, 4, 5, 6});
}

TEST_CASE("a run in another folder can start from a checkpoint", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", kEveryTwo).code == 0);
  REQUIRE(runs.train("b", {"--resume", runs.step("a", 4)}).code == 0);
  CHECK(steps_in(read_text(runs.dir("b") + "/metrics.jsonl")) == std::vector<int>{5, 6});
}

TEST_CASE("a finished run is resumed for more steps", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", {"checkpoint.every=100"}).code == 0);
  CHECK(runs.saved("a") == std::set<std::string>{"latest", "step-6"});
  REQUIRE(runs.train("a", {"--resume", "auto", "train.steps=8", "--resume-allow", "train.steps"}).code == 0);
  CHECK(steps_in(read_text(runs.dir("a") + "/metrics.jsonl")) == std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("--resume auto starts a new run if there is no checkpoint, and says so", "[cli]") {
  const Runs runs;
  const Said said = runs.train("new", {"--resume", "auto", "checkpoint.every=4"});
  CHECK(said.code == 0);
  CHECK_THAT(said.err, Catch::Contains("there is no checkpoint") && Catch::Contains("begins at step 1"));
  CHECK(steps_in(read_text(runs.dir("new") + "/metrics.jsonl")).size() == 6);
}

TEST_CASE("--resume refuses a folder that can't be resumed, and lists the choices", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", {"checkpoint.every=2", "checkpoint.keep_last=0"}).code == 0);
  REQUIRE(runs.train("plain").code == 0);
  const auto check_refused = [&](const Said& said, const std::vector<std::string>& words) {
    INFO(said.err);
    CHECK(said.code == 1);
    for (const std::string& word : words) CHECK_THAT(said.err, Catch::Contains(word));
  };
  check_refused(call_ddhost({"--model", toy_model(), "--resume", "auto"}), {"run.dir", "run.name"});
  check_refused(runs.train("a", {"--resume", runs.dir("nowhere")}), {"is not a checkpoint", "step-6, step-4, step-2"});
  check_refused(runs.train("b", {"--resume", runs.dir("plain")}), {"is not a checkpoint", "auto with run.dir"});
  check_refused(runs.train("plain", {"--resume", "auto"}), {"without checkpoints"});
  check_refused(runs.train("a"), {"already holds a run"});
  check_refused(runs.train("a", {"--resume", runs.step("a", 2)}),
                {"checkpoints of later steps", "step-6, step-4", "prune"});
  check_refused(runs.train("a", {"--resume", "auto", "optimizer.lr=0.02", "run.seed=1", "model.layers=2"}),
                {"optimizer.lr was 0.01 and is 0.02", "run.seed was 1337 and is 1", "model.layers", "--resume-allow"});
  check_refused(runs.train("a", {"--resume", "auto", "--optimizer", "adam"}),
                {"optimizer.plugin (--optimizer) was \"adamw\""});
  check_refused(runs.train("a", {"--resume", "auto", "--optimizer", "sgd", "--resume-allow", "optimizer.plugin"}),
                {"can't be resumed with another one"});
  check_refused(runs.train("a", {"--resume", "auto", "--resume-allow", "optimizer.rate"}), {"there is no such option"});
  check_refused(runs.train("a", {"--resume", "auto", "model.layers=2", "--resume-allow", "model.layers"}),
                {"which this run does not have", "another model"});
  check_refused(runs.train("a", {"--resume", "auto", "train.steps=5", "--resume-allow", "train.steps"}),
                {"is of step 6", "raise train.steps"});
  CHECK(steps_in(read_text(runs.dir("a") + "/metrics.jsonl")).size() == 6);
  CHECK(runs.saved("a").size() == 4);
}

TEST_CASE("a run with another global batch resumes at the exact sample, and warns that the bits will differ", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", {"checkpoint.every=2", "data.micro_batch=3"}).code == 0);
  const Said said = runs.train("b", {"--resume", runs.step("a", 4), "data.micro_batch=1", "checkpoint.every=1"});
  CHECK(said.code == 0);
  CHECK_THAT(said.err, Catch::Contains("the bits will differ"));
  const auto samples = [&](const std::string& checkpoint) {
    const nlohmann::json manifest = nlohmann::json::parse(read_text(checkpoint + "/manifest.json"));
    return manifest.at("progress").at("programs").at(0).at("samples").get<int>();
  };
  CHECK(samples(runs.step("a", 4)) == 4 * 6);
  CHECK(samples(runs.step("b", 6)) == 4 * 6 + 2 * 2);
}

TEST_CASE("an epoch that is resumed with another micro-batch ends with its last sample", "[cli]") {
  const Runs runs;
  const Words epochs = {"model.samples=40",   "train.steps=null",       "train.epochs=3",
                        "checkpoint.every=1", "checkpoint.keep_last=0", "data.workers=2"};
  const auto with = [&](const Words& more) {
    Words words = epochs;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  REQUIRE(runs.train("a", with({"data.micro_batch=4"})).code == 0);
  CHECK(steps_in(read_text(runs.dir("a") + "/metrics.jsonl")).size() == 15);
  // After seven steps of 8, 64 samples are left: 16 steps of 4.
  const Said said = runs.train("b", with({"--resume", runs.step("a", 7), "data.micro_batch.train=2"}));
  INFO(said.err);
  REQUIRE(said.code == 0);
  CHECK_THAT(said.err, Catch::Contains("of 4 samples and has 2 of 2 now") && Catch::Contains("the bits will differ"));
  CHECK(steps_in(read_text(runs.dir("b") + "/metrics.jsonl")).back() == 7 + 16);
  CHECK(runs.saved("b").contains("step-23"));
  const Said fewer = runs.train("c", with({"--resume", runs.step("a", 12), "data.micro_batch=4", "train.epochs=1",
                                           "--resume-allow", "train.epochs"}));
  CHECK(fewer.code == 1);
  CHECK_THAT(fewer.err, Catch::Contains("is of step 12") && Catch::Contains("train.epochs"));
}

TEST_CASE("a resumed run must have the phases of its checkpoint, except for their micro-batches", "[cli]") {
  const Runs runs;
  const auto phases = [](const std::string& second) {
    return Words{"train.steps=null", "checkpoint.every=1", "checkpoint.keep_last=0",
                 R"(train.phases=[{"program": "train", "steps": 2}, {"program": "train", )" + second + "}]"};
  };
  const auto resumed = [&](const char* name, const std::string& second, const Words& more = {}) {
    Words words = phases(second);
    words.insert(words.end(), {"--resume", runs.step("a", 3)});
    words.insert(words.end(), more.begin(), more.end());
    return runs.train(name, words);
  };
  REQUIRE(runs.train("a", phases(R"("steps": 4)")).code == 0);
  const Said smaller = resumed("b", R"("steps": 4, "micro_batch": 2)");
  CHECK(smaller.code == 0);
  CHECK_THAT(smaller.err, Catch::Contains("phase 2") && Catch::Contains("the bits will differ"));
  CHECK(resumed("c", R"("steps": 4, "lr": 0.5)").code == 1);
  const Said allowed = resumed("d", R"("steps": 4, "lr": 0.5)", {"--resume-allow", "train.phases"});
  CHECK(allowed.code == 1);
  CHECK_THAT(allowed.err, Catch::Contains("train.phases") && Catch::Contains("can't be resumed with another one"));
  const Said more = resumed("e", R"("steps": 4)", {"train.cycles=2", "--resume-allow", "train.cycles"});
  INFO(more.err);
  CHECK(more.code == 0);
  CHECK(runs.saved("e").contains("step-12"));
}

TEST_CASE("a run that train.patience has ended does not continue when it is resumed", "[cli]") {
  const Runs runs;
  const Words patient = {"train.eval_every=1", "train.patience=2", "train.patience_mode=max", "checkpoint.every=10"};
  REQUIRE(runs.train("a", patient).code == 0);
  CHECK(runs.saved("a") == std::set<std::string>{"latest", "step-3"});
  Words again = patient;
  again.insert(again.end(), {"--resume", "auto"});
  REQUIRE(runs.train("a", again).code == 0);
  CHECK(steps_in(read_text(runs.dir("a") + "/metrics.jsonl")) == std::vector<int>{1, 2, 3});
}

TEST_CASE("a run that is resumed at its end says that nothing is left, and needs no file of train.init_from", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", {"--save-final", runs.dir("w.st")}).code == 0);
  const Words options = {"train.init_from=" + runs.dir("w.st"), "checkpoint.every=4"};
  REQUIRE(runs.train("b", options).code == 0);
  fs::remove(runs.dir("w.st"));
  Words again = options;
  again.insert(again.end(), {"--resume", "auto", "run.quiet=false"});
  const Said said = runs.train("b", again);
  INFO(said.err);
  CHECK(said.code == 0);
  CHECK_THAT(said.err, Catch::Contains("nothing is left to train"));
}

TEST_CASE("an evaluation that a stop left out is recorded once, however often the run is resumed", "[cli]") {
  const Runs runs;
  const std::string rows = runs.dir("a") + "/metrics.jsonl";
  Words words = {"--model",
                 toy_model(),
                 "run.quiet=true",
                 "--nproc",
                 "2",
                 "train.eval_every=1",
                 "train.eval_batches=all",
                 "data.micro_batch=1",
                 "train.steps=900",
                 "model.samples=20000",
                 "checkpoint.every=100000",
                 "run.dir=" + runs.dir("a")};
  Process process(words);  // an evaluation takes much longer than a step
  for (int i = 0; i < 4000 && (!fs::exists(rows) || steps_in(read_text(rows)).empty()); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  kill(process.pid(), SIGTERM);
  REQUIRE(process.wait() == 143);
  const int step = steps_in(read_text(rows)).back();
  REQUIRE(nlohmann::json::parse(read_text(runs.step("a", step) + "/manifest.json"))["progress"]["evaluation_pending"]);
  words.insert(words.end(),
               {"--resume", "auto", "train.steps=" + std::to_string(step), "--resume-allow", "train.steps"});
  const auto evaluations = [&] {
    std::istringstream in(read_text(rows));
    int count = 0;
    for (std::string line; std::getline(in, line);)
      count += static_cast<int>(line.find("val_loss") != std::string::npos);
    return count;
  };
  for (int i = 0; i < 2; ++i) {
    REQUIRE(call_ddhost(words).code == 0);
    CHECK(evaluations() == step);
  }
}

TEST_CASE("ddhost eval evaluates a checkpoint, and refuses a damaged one", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", {"checkpoint.every=2", "--save-final", runs.dir("w.st")}).code == 0);
  const auto eval = [&](const std::string& weights) {
    return call_ddhost({"eval", "--model", toy_model(), "run.quiet=true", "--nproc", "2", "--weights", weights});
  };
  const Said of_file = eval(runs.dir("w.st")), of_checkpoint = eval(runs.step("a", 6));
  INFO(of_checkpoint.err);
  CHECK(of_checkpoint.code == 0);
  CHECK_THAT(of_file.out, Catch::Contains("loss"));
  CHECK(of_checkpoint.out == of_file.out);
  CHECK(eval(runs.step("a", 4)).out != of_file.out);
  REQUIRE(runs.train("b", {"train.init_from=" + runs.step("a", 6), "train.steps=1"}).code == 0);
  const std::string model = runs.step("a", 6) + "/model.safetensors";
  flip_bit(model, fs::file_size(model) - 1);
  const Said damaged = eval(runs.step("a", 6));
  CHECK(damaged.code == 1);
  CHECK_THAT(damaged.err, Catch::Contains("model.safetensors") && Catch::Contains("tensor '"));
}

TEST_CASE("damaged checkpoints are named, and the one before them is used", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", {"checkpoint.every=2", "checkpoint.keep_last=0", "--save-final", runs.dir("a.st")}).code ==
          0);
  fs::remove(runs.step("a", 6) + "/COMPLETE");
  flip_bit(runs.step("a", 4) + "/optimizer.safetensors",
           fs::file_size(runs.step("a", 4) + "/optimizer.safetensors") - 5);
  const Said said = runs.train("a", {"checkpoint.every=2", "--resume", "auto", "--save-final", runs.dir("b.st")});
  CHECK(said.code == 0);
  CHECK_THAT(said.err, Catch::Contains("step-6' has no file COMPLETE") && Catch::Contains("tensor '") &&
                           Catch::Contains("step-4/optimizer.safetensors' is damaged"));
  CHECK(read_text(runs.dir("a.st")) == read_text(runs.dir("b.st")));
  CHECK(runs.saved("a").contains("damaged-step-4"));
  for (const int step : {4, 6}) flip_bit(runs.step("a", step) + "/manifest.json", 30);
  fs::remove_all(runs.step("a", 2));
  const Said none = runs.train("a", {"checkpoint.every=2", "--resume", "auto"});
  CHECK(none.code == 1);
  CHECK_THAT(none.err, Catch::Contains("all checkpoints in") && Catch::Contains("step-6, step-4"));
}

TEST_CASE("a second run in the same folder is refused while the first one is running", "[cli]") {
  const Runs runs;
  Process first({"--model", toy_model(), "run.quiet=true", "train.steps=10000000", "--nproc", "2",
                 "run.dir=" + runs.dir("a"), "checkpoint.every=5"});
  for (int i = 0; i < 1000 && runs.saved("a").empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const Said second = runs.train("a", {"train.steps=10000000", "checkpoint.every=5", "--resume", "auto"});
  CHECK(second.code == 1);
  CHECK_THAT(second.err, Catch::Contains("in use by a run that has not ended"));
  CHECK(call_ddhost({"ckpt", "prune", runs.dir("a"), "--keep-last", "1"}).code == 1);
}

TEST_CASE("ckpt ls and show describe checkpoints, and ckpt verify names the damaged place", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", {"checkpoint.every=3", "--strategy", "zero2"}).code == 0);
  const Said list = call_ddhost({"ckpt", "ls", runs.dir("a")});
  CHECK(list.code == 0);
  CHECK_THAT(list.out, Catch::Contains("step-3") && Catch::Contains("step-6") && Catch::Contains("zero2 on 2 ranks"));
  const Said show = call_ddhost({"ckpt", "show", runs.step("a", 3)});
  CHECK_THAT(show.out, Catch::Contains("step            3") && Catch::Contains("exp_avg/embedding  F32 [31, 5]") &&
                           Catch::Contains("strategy        zero2"));
  CHECK(call_ddhost({"ckpt", "verify", runs.dir("a")}).code == 0);
  const std::string model = runs.step("a", 3) + "/model.safetensors";
  flip_bit(model, fs::file_size(model) - 1);
  const Said verify = call_ddhost({"ckpt", "verify", runs.dir("a")});
  CHECK(verify.code == 1);
  CHECK_THAT(verify.out, Catch::Contains("tensor 'bias'") && Catch::Contains("model.safetensors") &&
                             Catch::Contains("step-6: whole"));
  CHECK(call_ddhost({"ckpt", "verify", runs.step("a", 6)}).code == 0);
  CHECK(call_ddhost({"ckpt", "ls", runs.dir("nowhere")}).code == 1);
  CHECK(call_ddhost({"ckpt", "show", runs.dir("nowhere")}).code == 1);
  CHECK(call_ddhost({"ckpt"}).code == 2);
  CHECK(call_ddhost({"ckpt", "diff", runs.step("a", 3)}).code == 2);
}

TEST_CASE("ckpt diff counts the elements that differ", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", kEveryTwo).code == 0);
  REQUIRE(runs.train("b", {"checkpoint.every=2", "--strategy", "zero3"}).code == 0);
  const Said same = call_ddhost({"ckpt", "diff", runs.step("a", 6), runs.step("b", 6)});
  CHECK(same.code == 0);
  CHECK_THAT(same.out, Catch::Contains("0 of "));
  const Said other = call_ddhost({"ckpt", "diff", runs.step("a", 4), runs.step("a", 6)});
  CHECK(other.code == 1);
  CHECK_THAT(other.out, Catch::Contains("step: 4 and 6") && Catch::Contains("embedding: ") &&
                            Catch::Contains("elements differ, by ") && !Catch::Contains("layers.0.frozen"));
}

TEST_CASE("ckpt prune removes exactly the requested checkpoints", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", {"checkpoint.every=1", "checkpoint.keep_last=0"}).code == 0);
  CHECK(call_ddhost({"ckpt", "prune", runs.dir("a")}).code == 1);
  const Said after = call_ddhost({"ckpt", "prune", runs.dir("a"), "--after", "5"});
  CHECK(after.out == "removed step-6\n");
  CHECK(read_text(runs.dir("a") + "/checkpoints/latest") == "step-5\n");
  CHECK(call_ddhost({"ckpt", "prune", runs.dir("a"), "--keep-last", "1", "--keep-every", "2"}).code == 0);
  CHECK(runs.saved("a") == std::set<std::string>{"latest", "step-2", "step-4", "step-5"});
}

TEST_CASE("an export equals the file of --save-final, in one file or in several", "[cli]") {
  const Runs runs;
  const Words stored = {"checkpoint.every=6", "--strategy",         "zero3",        "precision.compute=bf16",
                        "model.stored=bf16",  "model.buffers=true", "--save-final", runs.dir("final.safetensors")};
  REQUIRE(runs.train("a", stored).code == 0);
  const Said one = call_ddhost({"export", runs.step("a", 6), runs.dir("one")});
  INFO(one.err);
  REQUIRE(one.code == 0);
  CHECK(read_text(runs.dir("one/model.safetensors")) == read_text(runs.dir("final.safetensors")));
  CHECK(call_ddhost({"export", runs.step("a", 6), runs.dir("one")}).code == 1);  // nothing is overwritten
  const Said many = call_ddhost({"export", runs.step("a", 6), runs.dir("many"), "--max-shard-size", "0.3KB"});
  REQUIRE(many.code == 0);
  const nlohmann::json index = nlohmann::json::parse(read_text(runs.dir("many/model.safetensors.index.json")));
  const GoldenFile whole = read_safetensors(runs.dir("final.safetensors"));
  std::set<std::string> files;
  for (const auto& [name, tensor] : whole.tensors) {
    const std::string file = index.at("weight_map").at(name);
    files.insert(file);
    CHECK(read_safetensors(runs.dir("many/" + file)).at(name).bytes == tensor.bytes);
  }
  CHECK(files.size() > 2);
  CHECK(index.at("weight_map").size() == whole.tensors.size());
  CHECK(call_ddhost({"export", runs.step("a", 6), runs.dir("x"), "--max-shard-size", "many"}).code == 1);
}
