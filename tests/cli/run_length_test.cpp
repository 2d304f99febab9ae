// SPDX-License-Identifier: Apache-2.0
//
// The length of a run and the size of its steps, and how both are reported: train.epochs, data.micro_batch of single
// programs, data.workers.
#include <catch2/catch.hpp>

#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;

namespace {

std::string losses(const std::vector<std::string>& options) { return ran(toy_run(options)).record.column("loss"); }

}  // namespace

TEST_CASE("train.epochs trains on every sample that many times, for any number of ranks", "[cli]") {
  const std::vector<std::string> options = {"train.epochs=2", "model.samples=100", "data.drop_last=false"};
  const ToyRun joined = ran(toy_run({"train.epochs=2", "model.samples=100", "data.micro_batch=6"}));
  CHECK(joined.record.steps.size() == 17);  // 200 samples in steps of 12
  const ToyRun two = ran(toy_run(options, {"data.micro_batch=6"})),
               one = ran(toy_run(options, {"data.micro_batch=12", "--nproc", "1"}));
  CHECK(two.record.steps.size() == 18);  // 8 x 12 and 4, twice
  CHECK(one.record.steps.size() == 18);
  CHECK(two.record.summary.at("steps") == 18);
}

TEST_CASE("a run with a length in epochs has the bits of a run with the same length in steps", "[cli]") {
  const std::vector<std::string> options = {"model.samples=100", "data.micro_batch=5", "schedule.warmup_steps=3"};
  CHECK(losses(joined(options, {"train.epochs=3"})) == losses(joined(options, {"train.steps=30"})));
}

TEST_CASE("the first line shows the samples of a step, and the progress line shows the epoch", "[cli]") {
  const std::vector<std::string> options = {"run.quiet=false", "model.samples=100", "data.micro_batch=5",
                                            "train.grad_accum_steps=2"};
  const ToyRun epochs = ran(toy_run(options, {"train.epochs=2"}));
  CHECK_THAT(epochs.err, Catch::Contains("20 samples a step (5 x 2 ranks x 2 micro-batches)"));
  CHECK_THAT(epochs.err, Catch::Contains("step 10/10  epoch 2/2 100%"));
  const ToyRun steps = ran(toy_run(options, {"train.steps=7"}));
  CHECK_THAT(steps.err, Catch::Contains("step 7/7  epoch 2 40%"));
  const ToyRun over = ran(toy_run(options, {"train.epochs=1", "model.samples=90"}));  // the last step takes 10 more
  CHECK_THAT(over.err, Catch::Contains("step 5/5  epoch 1/1 100%"));
}

TEST_CASE("a program may have its own micro-batch, in a file or on the command line", "[cli]") {
  const TempFolder folder;
  std::ofstream(folder.file("config.json")) << R"({"data": {"micro_batch": {"train": 3, "second": 7}}})";
  const std::vector<std::string> options = {"model.programs=2", "run.quiet=false", "train.steps=4"};
  const ToyRun file = ran(toy_run(options, {"--config", folder.file("config.json")})),
               words = ran(toy_run(options, {"data.micro_batch.train=3", "data.micro_batch.second=7"}));
  for (const ToyRun* run : {&file, &words}) {
    CHECK_THAT(run->err,
               Catch::Contains("6 samples of train a step") && Catch::Contains("14 samples of second a step"));
    CHECK(run->record.column("loss") == file.record.column("loss"));
  }
  const ToyRun both = ran(toy_run(options, {"--config", folder.file("config.json"), "data.micro_batch.second=2"}));
  CHECK_THAT(both.err, Catch::Contains("6 samples of train a step") && Catch::Contains("4 samples of second a step"));
  CHECK(losses({"train.steps=4", "data.micro_batch.train=3"}) == losses({"train.steps=4", "data.micro_batch=3"}));
}

TEST_CASE("batches do not depend on the number of threads that create them", "[cli]") {
  const std::vector<std::string> options = {"train.steps=40", "train.grad_accum_steps=3", "model.programs=2",
                                            "train.eval_every=7"};
  const std::string one = losses(joined(options, {"data.workers=1"}));
  for (const char* workers : {"data.workers=2", "data.workers=16"}) CHECK(losses(joined(options, {workers})) == one);
}

TEST_CASE("an invalid length or size gets one sentence", "[cli]") {
  check_refused(toy_run({"train.epochs=2", "train.steps=3"}), {"train.steps=3 and train.epochs=2", "leave one out"});
  check_refused(toy_run({"train.epochs=0"}), {"train.epochs = 0", "at least 1"});
  check_refused(toy_run({"train.epochs=1000000000000000"}), {"too many to count"});
  check_refused(toy_run({"data.micro_batch.trian=3"}), {"data.micro_batch.trian", "it has train, eval"});
  check_refused(toy_run({"data.micro_batch.train=0"}), {"data.micro_batch.train = 0", "from 1 to 1048576"});
  check_refused(toy_run({"data.micro_batch.train=2.5"}), {"data.micro_batch.train = 2.5", "from 1 to 1048576"});
  check_refused(toy_run({"data.workers=0"}), {"data.workers = 0", "1 to 16"});
  check_refused(toy_run({"data.workers=17"}), {"data.workers = 17", "1 to 16"});
}

TEST_CASE("a dry run with epochs and micro-batches prints an equivalent config", "[cli]") {
  const TempFolder folder;
  const std::vector<std::string> options = {"train.epochs=3", "data.micro_batch.train=4", "--dry-run"};
  const ToyRun first = toy_run(options);
  REQUIRE(first.code == 0);
  CHECK(nlohmann::json::parse(first.out).at("train").at("steps").is_null());
  std::ofstream(folder.file("config.json")) << first.out;
  Process again({"--config", folder.file("config.json"), "--dry-run"});
  REQUIRE(again.wait() == 0);
  CHECK(again.out() == first.out);
}
