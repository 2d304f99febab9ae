// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints of earlier versions of ddhost: what has changed since is said, not passed over.
#include <catch2/catch.hpp>

#include "checkpoint/manifest.hpp"
#include "cli/checkpoint_runs.hpp"

using namespace ddhost::test;

namespace {

template <class Change>
void change_manifest(const std::string& checkpoint, Change change) {
  nlohmann::ordered_json manifest = nlohmann::ordered_json::parse(read_text(checkpoint + "/manifest.json"));
  change(manifest);
  write_manifest(checkpoint, manifest.dump(1) + "\n");
}
void forget_order(const std::string& checkpoint) {
  change_manifest(checkpoint, [](nlohmann::ordered_json& manifest) {
    REQUIRE(manifest.at("host").at("sample_order") == "2");
    manifest.at("host").erase("sample_order");
  });
}

// A run of two more steps from step 4.
Said resumed(const Runs& runs, const std::string& name, const Words& options, const Words& more = {}) {
  Words words = options;
  words.insert(words.end(), {"--resume", runs.step(name, 4)});
  words.insert(words.end(), more.begin(), more.end());
  return runs.train(name + "-resumed", words);
}

}  // namespace

TEST_CASE("a checkpoint whose samples had another order is resumed only if that is allowed, and says it", "[cli]") {
  const Runs runs;
  const Words small = {"checkpoint.every=2", "model.samples=100"};
  REQUIRE(runs.train("small", small).code == 0);
  forget_order(runs.step("small", 4));
  const Said refused = resumed(runs, "small", small);
  INFO(refused.err);
  CHECK(refused.code == 1);
  CHECK_THAT(refused.err, Catch::Contains("orders the samples of 'train' (100 samples) otherwise") &&
                              Catch::Contains("--resume-allow host.sample_order"));
  const Said allowed = resumed(runs, "small", small, {"--resume-allow", "host.sample_order"});
  INFO(allowed.err);
  CHECK(allowed.code == 0);
  CHECK_THAT(allowed.err, Catch::Contains("the bits will differ"));
}

TEST_CASE("a checkpoint whose samples have the same order still is resumed without a word about it", "[cli]") {
  const Runs runs;
  const auto check_silent = [&](const std::string& name, Words options) {
    options.emplace_back("checkpoint.every=2");
    REQUIRE(runs.train(name, options).code == 0);
    forget_order(runs.step(name, 4));
    const Said said = resumed(runs, name, options);
    INFO(name << ": " << said.err);
    CHECK(said.code == 0);
    CHECK_THAT(said.err, !Catch::Contains("order"));
  };
  check_silent("large", {"model.samples=1025"});
  const std::string file = runs.dir("order.bin");
  std::ofstream out(file, std::ios::binary);
  for (int64_t i = 0; i < 50; ++i) out.write(reinterpret_cast<const char*>(&i), sizeof i);
  out.close();
  check_silent("from a file", {"model.samples=100", "data.order=" + file});
}

TEST_CASE("an option that the saving version did not have must keep its default", "[cli]") {
  const Runs runs;
  const Words options = {"checkpoint.every=2", "--schedule", "constant", "schedule.warmup_steps=5"};
  REQUIRE(runs.train("a", options).code == 0);
  change_manifest(runs.step("a", 4), [](nlohmann::ordered_json& manifest) {
    REQUIRE(manifest.at("config").at("schedule").erase("warmup_from_zero") == 1);
  });
  const Words theirs = {"checkpoint.every=2", "--schedule", "constant", "schedule.num_warmup_steps=5"};
  const Said refused = resumed(runs, "a", theirs);
  INFO(refused.err);
  CHECK(refused.code == 1);
  CHECK_THAT(refused.err, Catch::Contains("schedule.warmup_from_zero was not known and is true"));
  CHECK(resumed(runs, "a", options).code == 0);
}
