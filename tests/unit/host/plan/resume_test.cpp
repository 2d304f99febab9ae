// SPDX-License-Identifier: Apache-2.0
//
// --resume auto in a run with other launchers: whether the ranks look into the memory of the hosts, and what happens if there
// is nothing. A run that starts again takes the checkpoint of --resume PATH if it has none of its own.
#include "plan/resume.hpp"

#include <catch2/catch.hpp>
#include <fstream>

#include "base/durable.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/host_parts.hpp"
#include "checkpoint/memory_folder.hpp"
#include "engine/record/step_count.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/throws.hpp"

namespace fs = std::filesystem;
using namespace ddhost;
using namespace ddhost::test;

namespace {

// A folder with a run of several hosts, and the plan of the next run in it.
class Resumed {
 public:
  explicit Resumed(const StepNumbers& numbers,
                   const std::string& saved_config = R"({"checkpoint": {"memory_every": 10}})") {
    std::ofstream(folder_.file(kRunLock)) << "";
    StepCount(folder_.path(), numbers).saved(numbers.saved);
    std::ofstream(folder_.file("config.json")) << saved_config;
    plan.run_dir = folder_.path();
    plan.memory_by_host = true;
    plan.wish.from = ResumeWish::From::newest;
    for (const auto& [key, value] : std::map<std::string, Json>{{"run.resume_allow", Json::array()},
                                                                {"run.seed", 1},
                                                                {"checkpoint.memory_every", 10},
                                                                {"checkpoint.on_exit", true},
                                                                {"train.grad_accum_steps", 1},
                                                                {"train.reduce_order", "rank_first"},
                                                                {"data.order", ""},
                                                                {"model.matmul", "auto"}})
      plan.config.set(key, value, "default");
  }
  [[nodiscard]] fs::path folder() const { return folder_.path(); }
  // Of a step, in the folder of a run.
  static fs::path save(const fs::path& run, int64_t step) {
    Manifest manifest;
    manifest.progress.step = step;
    manifest.config = R"({"train": {"grad_accum_steps": 1}})";
    manifest.progress.programs.push_back({"train", 1, 1});
    manifest.progress.optimizers.push_back({"optimizer", "adamw", "1", {}, {}, {}});
    manifest.files.push_back({"model.safetensors", 0, 0, sum_of("", 0)});
    write_durably(begin_checkpoint(run, step) / "model.safetensors", "");
    commit_checkpoint(run, manifest);
    return checkpoint_folder(run, step);
  }

  PreparedRun plan;

 private:
  const TempFolder folder_;
};

}  // namespace

TEST_CASE("a run of several hosts without a checkpoint on the disk looks into their memory", "[prepare]") {
  Resumed run({0, 37, 0, 9}, R"({"checkpoint": {"memory_every": 10}, "model": {"matmul": "blocks"}})");
  const std::vector<std::string> said = choose_checkpoints(run.plan);
  REQUIRE(said.size() == 1);
  CHECK_THAT(said[0], Catch::Contains("goes on from one in the memory of its hosts"));
  REQUIRE(run.plan.memory_resume);
  CHECK(run.plan.memory_resume->first_run == 9);
  CHECK_THAT(run.plan.memory_resume->otherwise, Catch::Contains("neither the disk nor the memory"));
  CHECK(run.plan.config.text("model.matmul") == "blocks");  // as it was chosen
}

TEST_CASE("without checkpoint.memory_every there is nothing in the memory of the hosts", "[prepare]") {
  Resumed run({0, 37, 0, 0}, "{}");
  CHECK_THAT(sentence_of([&] { choose_checkpoints(run.plan); }), Catch::Contains("holds a run without checkpoints"));
  Resumed early({0, 37, 0, 0}, R"({"checkpoint": {"every": 100}})");
  const std::vector<std::string> said = choose_checkpoints(early.plan);
  REQUIRE(said.size() == 1);
  CHECK_THAT(said[0], Catch::Contains("the run begins at step 1"));
  CHECK_FALSE(early.plan.memory_resume);
}

TEST_CASE("where all checkpoints on the disk are damaged, the memory of the hosts may have one", "[prepare]") {
  const uint64_t first_run = GENERATE(0, 9);
  Resumed run({0, 37, 20, first_run});
  fs::remove(Resumed::save(run.folder(), 20) / "COMPLETE");
  if (first_run == 0) {
    CHECK_THAT(sentence_of([&] { choose_checkpoints(run.plan); }), Catch::Contains("are damaged (step-20)"));
    return;
  }
  const std::vector<std::string> said = choose_checkpoints(run.plan);
  REQUIRE(said.size() == 1);
  CHECK_THAT(said[0], Catch::Contains("no file COMPLETE") && Catch::Contains("in the memory of its hosts"));
  REQUIRE(run.plan.memory_resume);
  CHECK_THAT(run.plan.memory_resume->otherwise, Catch::Contains("are damaged (step-20)"));
}

TEST_CASE("a run that starts again goes on from its own checkpoints, or from that of --resume PATH", "[prepare]") {
  const TempFolder other;
  const fs::path first = Resumed::save(other.path(), 4);
  Resumed run({4, 37, 0, 9});
  run.plan.wish.otherwise = first;
  CHECK(choose_checkpoints(run.plan).empty());
  CHECK(run.plan.resume == std::vector<fs::path>{first});
  REQUIRE(run.plan.memory_resume);
  CHECK(run.plan.memory_resume->otherwise.empty());

  Resumed changed({3, 37, 0, 9});  // PATH stands for another checkpoint by now
  changed.plan.wish.otherwise = first;
  choose_checkpoints(changed.plan);
  CHECK(changed.plan.resume.empty());
  CHECK_THAT(changed.plan.memory_resume->otherwise, Catch::Contains("began with the checkpoint of step 3"));

  Resumed damaged({4, 37, 0, 9});  // the hosts may have a newer one
  damaged.plan.wish.otherwise = Resumed::save(damaged.folder() / "other", 4);
  fs::remove(damaged.plan.wish.otherwise / "COMPLETE");
  const std::vector<std::string> said = choose_checkpoints(damaged.plan);
  REQUIRE(said.size() == 1);
  CHECK_THAT(said[0], Catch::Contains("no file COMPLETE") && Catch::Contains("in the memory of its hosts"));
  CHECK(damaged.plan.resume.empty());
  CHECK_THAT(damaged.plan.memory_resume->otherwise, Catch::Contains("began with the checkpoint of step 4"));
  Resumed none({4, 37, 0, 0});
  none.plan.wish.otherwise = damaged.plan.wish.otherwise;
  CHECK_THAT(sentence_of([&] { choose_checkpoints(none.plan); }), Catch::Contains("no file COMPLETE"));

  Resumed has_own({4, 37, 30, 9});
  has_own.plan.wish.otherwise = first;
  const fs::path own = Resumed::save(has_own.folder(), 30);
  choose_checkpoints(has_own.plan);
  CHECK(has_own.plan.resume == std::vector<fs::path>{own});
}

TEST_CASE("a run does not go on where the other kind of run has a newer checkpoint in memory", "[prepare]") {
  const bool by_host = GENERATE(false, true);
  const int64_t on_disk = GENERATE(20, 30);
  const uint64_t first_run = GENERATE(9, 8);  // 8: parts of an earlier run
  Resumed run({0, 37, on_disk, 9});
  run.plan.memory_by_host = by_host;
  const fs::path own = Resumed::save(run.folder(), on_disk);
  make_memory_folder(run.folder());
  const fs::path newer = checkpoint_folder(memory_root(run.folder(), !by_host), 30);
  fs::create_directories(newer);
  if (!by_host) write_part(newer, {{7, first_run, 30, 2, 0, 0}, {}});
  const std::string said = sentence_of([&] { choose_checkpoints(run.plan); });
  if (on_disk == 30 || (!by_host && first_run == 8)) {
    CHECK(said.empty());
    CHECK(run.plan.resume == std::vector<fs::path>{own});
  } else {
    CHECK_THAT(said, Catch::Contains("checkpoint of step 30") &&
                         Catch::Contains(by_host ? "start it without other hosts" : "start it with its hosts"));
    CHECK(fs::exists(newer));
  }
  remove_memory_folder(run.folder());
}

TEST_CASE("the ranks compare the run with a checkpoint in the memory of the hosts", "[prepare]") {
  Resumed run({0, 37, 0, 9});
  choose_checkpoints(run.plan);
  REQUIRE(run.plan.memory_resume);
  Manifest manifest;
  manifest.config = R"({"train": {"grad_accum_steps": 2}})";
  manifest.host = {{"instruction_set", "old"}, {"sample_order", "2"}};
  run.plan.instruction_set = "new";
  CHECK_THAT(sentence_of([&] { run.plan.memory_resume->check(manifest, "it"); }),
             Catch::Contains("it was saved with the instructions of old"));
  run.plan.config.set("run.resume_allow", Json::array({"host.instruction_set"}), "the command line");
  const std::vector<std::string> warnings = run.plan.memory_resume->check(manifest, "it");
  REQUIRE(warnings.size() == 2);
  CHECK_THAT(warnings[0], Catch::Contains("the bits will differ"));
  CHECK_THAT(warnings[1], Catch::Contains("the instructions of old"));
  // The checkpoint on the disk, or the folder, may be of another configuration than the newer one in memory.
  manifest.config = R"({"run": {"seed": 2}, "train": {"grad_accum_steps": 2}})";
  CHECK_THAT(sentence_of([&] { run.plan.memory_resume->check(manifest, "it"); }),
             Catch::Contains("the configuration differs from that of it: run.seed was 2 and is 1"));
}
