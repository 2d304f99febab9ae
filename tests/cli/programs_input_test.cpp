// SPDX-License-Identifier: Apache-2.0
//
// Invalid options of several optimizers and of update programs are refused in one sentence, before the training.
#include <catch2/catch.hpp>

#include "fixtures/harness/built.hpp"
#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost::test;

namespace {

struct Ended {
  int code;
  std::string err;
};

Ended run(const char* model, std::vector<std::string> more) {
  const TempFolder folder;
  std::vector<std::string> args = {"--model",
                                   test_plugin(model),
                                   "--nproc",
                                   "2",
                                   "train.steps=3",
                                   "run.quiet=true",
                                   "run.dir=" + folder.file("run")};
  args.insert(args.end(), more.begin(), more.end());
  Process process(args);
  const int code = process.wait(std::chrono::seconds(30));
  return {code, process.err()};
}

void check_refused(const Ended& ended, const std::vector<std::string>& words) {
  INFO(ended.err);
  CHECK(ended.code > 0);
  CHECK(ended.code < 128);
  for (const std::string& word : words) CHECK_THAT(ended.err, Catch::Contains(word));
}

const std::string kTwo = "train.optimizers=[\"optimizer\",\"optimizer_kg\"]";

}  // namespace

TEST_CASE("the control: two optimizers, each with its own options", "[cli]") {
  const Ended ended = run("toy_features", {"model.programs=2", "model.optimizers=2", kTwo, "optimizer_kg.plugin=sgd",
                                           "optimizer_kg.momentum=0.9"});
  INFO(ended.err);
  CHECK(ended.code == 0);
}

TEST_CASE("train.optimizers with a duplicate, an illegal name or another first name is refused", "[cli]") {
  check_refused(run("toy", {"train.optimizers=[\"optimizer\",\"optimizer_kg\",\"optimizer_kg\"]"}),
                {"'optimizer_kg' twice", "its own section"});
  check_refused(run("toy", {"train.optimizers=[\"optimizer\",\"adam\"]"}), {"'adam'", "optimizer_ and a word"});
  check_refused(run("toy", {"train.optimizers=[\"optimizer_kg\"]"}), {"begins with 'optimizer_kg'"});
  check_refused(run("toy", {"train.optimizers=[]"}), {"train.optimizers", "1 or more items"});
  check_refused(run("toy", {"train.optimizers=adamw"}), {"train.optimizers", "array"});
}

TEST_CASE("a section of an optimizer that the run does not have, or a wrong option in one, is refused", "[cli]") {
  check_refused(run("toy", {"optimizer_kg.lr=1"}), {"'optimizer_kg'", "train.optimizers"});
  check_refused(run("toy", {kTwo, "optimizer_kg.lrr=1"}), {"optimizer_kg.lrr", "optimizer_kg.lr"});
  check_refused(run("toy", {kTwo, "optimizer_kg.plugin=nosuch"}), {"no optimizer 'nosuch'"});
  check_refused(run("toy", {kTwo, "optimizer_kg.plugin=sgd", "optimizer_kg.nesterov=true"}),
                {"optimizer_kg.nesterov needs momentum", "optimizer_kg.momentum"});
}

TEST_CASE("a program of the run that names an optimizer beyond the list is refused; one that is left out is not",
          "[cli]") {
  check_refused(run("toy_features", {"model.programs=2", "model.optimizers=3", kTwo}),
                {"program 'second' is trained by optimizer 2", "train.optimizers"});
  CHECK(run("toy_features", {"model.programs=2", "model.optimizers=2", "train.programs=[\"train\"]"}).code == 0);
}

TEST_CASE("with one optimizer and no programs named, programs of other optimizers are left out, which is told",
          "[cli]") {
  const std::vector<std::string> options = {"model.programs=2", "model.optimizers=2"};
  const Ended ended = run("toy_features", options);
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, Catch::Contains("program 'second' is not trained") &&
                            Catch::Contains("train.optimizers=[\"optimizer\", \"optimizer_second\"]"));
  std::vector<std::string> named = options;
  named.emplace_back("train.programs=[\"train\", \"second\"]");
  check_refused(run("toy_features", named), {"program 'second' is trained by optimizer 1", "train.optimizers"});
}

TEST_CASE("an optimizer that no program uses is reported", "[cli]") {
  const Ended ended = run("toy", {kTwo});
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, Catch::Contains("no program of the run uses optimizer 'optimizer_kg'"));
}

TEST_CASE("train.update_every without an update program is refused", "[cli]") {
  check_refused(run("toy", {"train.update_every=2"}), {"no update program", "train.update_every=0"});
}

TEST_CASE("a model that uses a feature without declaring it is refused by the feature's name", "[cli]") {
  check_refused(run("toy", {"model.encoder=forward_only"}), {"flags of positions", "DDH_FEATURE_POSITIONS"});
  check_refused(run("toy", {"model.update_samples=5"}), {"'renew'", "DDH_FEATURE_UPDATES"});
  check_refused(run("toy", {"model.fp32_params=true"}), {"compute dtype", "DDH_FEATURE_PARAM_DTYPES"});
  check_refused(run("toy", {"model.programs=2", "model.optimizers=2", kTwo}), {"'second'", "DDH_FEATURE_OPTIMIZERS"});
}

TEST_CASE("a dry run with several optimizers prints an equivalent config", "[cli]") {
  const auto dry_run = [](std::vector<std::string> more) {
    more.insert(more.begin(), "--dry-run");
    Process process(more);
    REQUIRE(process.wait(std::chrono::seconds(30)) == 0);
    return process.out();
  };
  const TempFolder folder;
  const std::string model = test_plugin("toy_features");
  const std::string first = dry_run({"--model", model, "--nproc", "2", "run.dir=" + folder.file("run"), kTwo,
                                     "optimizer_kg.plugin=sgd", "optimizer_kg.momentum=0.9"});
  CHECK(nlohmann::json::parse(first).at("optimizer_kg").at("momentum") == 0.9);
  std::ofstream(folder.file("config.json")) << first;
  CHECK(dry_run({"--config", folder.file("config.json")}) == first);
}
