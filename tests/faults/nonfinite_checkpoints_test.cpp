// SPDX-License-Identifier: Apache-2.0
//
// Values from which no run can go on never get into a checkpoint, and a checkpoint that has them is named and passed over.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/safetensors.hpp"
#include "cli/checkpoint_runs.hpp"

using namespace ddhost::test;

namespace {

// The optimizer spoils values in its update of step 4, after which the run saves.
Words spoiled(const std::string& fault, const Words& more = {}) {
  Words words = {"--optimizer",
                 test_plugin("bad_optimizer"),
                 "optimizer.at=update",
                 "optimizer.step=4",
                 "optimizer.fault=" + fault,
                 "checkpoint.every=2",
                 "checkpoint.keep_last=0",
                 "schedule.type=constant"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}
Words healed(const Words& more = {}) {
  Words words = spoiled("none", {"--resume", "auto", "--resume-allow", "optimizer.fault,train.steps"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Puts a value at the end of a tensor of a whole checkpoint, with the checksums that a run would have written.
void put(const fs::path& folder, const std::string& name, float value) {
  ddhost::Manifest manifest = ddhost::open_checkpoint(folder);
  for (ddhost::Manifest::Tensor& tensor : manifest.tensors) {
    const ddhost::StoredTensor& t = tensor.stored;
    if (t.name != name) continue;
    REQUIRE(t.chunks() == 1);
    std::string file = read_text(folder / manifest.files[t.file].name);
    std::memcpy(&file[t.offset + t.bytes - sizeof value], &value, sizeof value);
    std::ofstream(folder / manifest.files[t.file].name, std::ios::binary) << file;
    tensor.sums[0] = ddhost::sum_of(&file[t.offset], t.bytes);
  }
  write_manifest(folder, ddhost::manifest_text(manifest));
}

// The forwards that the toy has counted.
int64_t forwards_in(const fs::path& checkpoint) {
  const ddhost::SafetensorsFile file((checkpoint / "model.safetensors").string());
  int64_t out = 0;
  std::memcpy(&out, file.find("forwards")->data, sizeof out);
  return out;
}

}  // namespace

TEST_CASE("a checkpoint with NaN is not saved, and the run ends with the parameter and the rank", "[faults]") {
  const char* const strategy = GENERATE("ddp", "zero1", "zero3");
  const char* const async = GENERATE("checkpoint.async=true", "checkpoint.async=false");
  const Runs runs;
  INFO(strategy << " " << async);
  const Words options = {"--strategy", strategy, async};
  const Said end = runs.train("a", [&] {
    Words words = spoiled("nan", options);
    words.push_back("train.steps=4");  // of the last step, because the next one would see the NaN itself
    return words;
  }());
  INFO(end.err);
  CHECK(end.code == 1);
  CHECK_THAT(end.err, Catch::Contains("the checkpoint of step 4 is not saved: parameter '") &&
                          Catch::Contains("is not finite from element ") && Catch::Contains("(rank 0): "));
  CHECK(runs.saved("a") == std::set<std::string>{"latest", "step-2"});
  // The checkpoint before is used, with the bits of a run that was never spoiled.
  Words again = healed(options), unbroken = spoiled("none", options);
  const Said resumed = runs.train("a", again);
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  REQUIRE(runs.train("b", unbroken).code == 0);
  CHECK(rows_of(runs.dir("a")) == rows_of(runs.dir("b")));
  CHECK(call_ddhost({"ckpt", "diff", runs.step("a", 6), runs.step("b", 6)}).code == 0);
}

TEST_CASE("the rank that holds the NaN is named", "[faults]") {
  const Runs runs;
  const Said end = runs.train("a", spoiled("nan_later", {"--strategy", "zero1", "train.steps=4", "model.width=64"}));
  INFO(end.err);
  CHECK(end.code == 1);
  CHECK_THAT(end.err, Catch::Contains("step 4 is not saved: parameter '") && Catch::Contains("(rank 1): "));
}

TEST_CASE("a run that applies gradients that are not finite saves no checkpoint of them", "[faults]") {
  const Runs runs;
  const Said end = runs.train("a", {"model.nan_at_step=4", "train.skip_nonfinite=false", "checkpoint.every=2"});
  INFO(end.err);
  CHECK(end.code == 1);
  CHECK_THAT(end.err, Catch::Contains("the checkpoint of step 4 is not saved") &&
                          Catch::Contains("train.skip_nonfinite is false"));
  CHECK(runs.saved("a") == std::set<std::string>{"latest", "step-2"});
}

TEST_CASE("a NaN in the state of an optimizer is not saved, and an infinity is", "[faults]") {
  const Runs runs;
  const Said nan = runs.train("nan", spoiled("nan_in_slot"));
  INFO(nan.err);
  CHECK(nan.code == 1);
  CHECK_THAT(nan.err, Catch::Contains("step 4 is not saved: optimizer state 'unused/") &&
                          Catch::Contains("' is NaN from element ") && Catch::Contains("(rank 0): "));
  CHECK(runs.saved("nan") == std::set<std::string>{"latest", "step-2"});
  CHECK(runs.train("infinity", spoiled("infinity_in_slot")).code == 0);
  const Said verified = call_ddhost({"ckpt", "verify", runs.step("infinity", 4)});
  CHECK(verified.code == 0);
  CHECK_THAT(verified.out, Catch::Contains("whole") && Catch::Contains("of 'unused/") && Catch::Contains("not finite"));
  CHECK(runs.train("b", healed({"--resume", runs.step("infinity", 4)})).code == 0);
}

TEST_CASE("steps that are skipped, and parameters that are frozen, don't keep a run from saving", "[faults]") {
  const char* const precision = GENERATE("fp32", "fp16");
  const char* const strategy = GENERATE("ddp", "zero3");
  const Runs runs;
  const Said end =
      runs.train("a", {"model.nan_at_step=3", "checkpoint.every=1", "checkpoint.keep_last=0", "model.frozen_layer=1",
                       "model.encoder=frozen", "--strategy", strategy, std::string("precision.compute=") + precision});
  INFO(end.err);
  CHECK(end.code == 0);
  CHECK_THAT(end.err, Catch::Contains("is skipped"));
  CHECK(runs.saved("a").size() == 7);
  const Said verified = call_ddhost({"ckpt", "verify", runs.dir("a")});
  CHECK(verified.code == 0);
  CHECK_THAT(verified.out, !Catch::Contains("not finite"));
}

TEST_CASE("ckpt verify says which values of an older checkpoint are not finite", "[faults]") {
  const float value = GENERATE(std::nanf(""), HUGE_VALF, -HUGE_VALF);
  const Runs runs;
  REQUIRE(runs.train("a", {"checkpoint.every=2"}).code == 0);
  put(runs.step("a", 6), "bias", value);
  const Said said = call_ddhost({"ckpt", "verify", runs.dir("a")});
  CHECK(said.code == 1);
  CHECK_THAT(said.out, Catch::Contains("step-6: whole") && Catch::Contains("1 value of 'bias' is not finite") &&
                           Catch::Contains("no run can go on from it: parameter 'bias' is not finite from element 30"));
  CHECK_THAT(said.out, Catch::Contains("step-4: whole") && Catch::Contains(" read\n"));
}

TEST_CASE("--resume auto passes over older checkpoints with NaN, and says so", "[faults]") {
  const std::string tensor = GENERATE("bias", "exp_avg_sq/embedding");
  const char* const strategy = GENERATE("ddp", "zero3");
  const Runs runs;
  const Words options = {"checkpoint.every=2", "checkpoint.keep_last=0", "--strategy", strategy, "run.quiet=false"};
  REQUIRE(runs.train("a", options).code == 0);
  REQUIRE(runs.train("b", options).code == 0);
  for (const int step : {4, 6}) put(runs.step("a", step), tensor, std::nanf(""));
  Words again = options;
  again.insert(again.end(), {"--resume", "auto"});
  const Said said = runs.train("a", again);
  INFO(said.err);
  REQUIRE(said.code == 0);
  CHECK_THAT(said.err, Catch::Contains("'" + tensor + "' is ") && Catch::Contains("step-6/") &&
                           Catch::Contains("this checkpoint is skipped") && Catch::Contains("resumed after step 2"));
  CHECK(runs.saved("a") ==
        std::set<std::string>{"damaged-step-4", "damaged-step-6", "latest", "step-2", "step-4", "step-6"});
  CHECK(rows_of(runs.dir("a")) == rows_of(runs.dir("b")));
  CHECK(call_ddhost({"ckpt", "diff", runs.step("a", 6), runs.step("b", 6)}).code == 0);
}

TEST_CASE("a run is refused where every checkpoint has NaN, or the one that it names", "[faults]") {
  const Runs runs;
  REQUIRE(runs.train("a", {"checkpoint.every=3"}).code == 0);
  for (const int step : {3, 6}) put(runs.step("a", step), "bias", std::nanf(""));
  const auto check_refused = [&](const char* name, const std::string& resume) {
    const Said said = runs.train(name, {"checkpoint.every=3", "--resume", resume});
    INFO(said.err);
    CHECK(said.code == 1);
    CHECK_THAT(said.err, Catch::Contains("no checkpoint can be loaded: parameter 'bias' is not finite") &&
                             !Catch::Contains("train.init_from"));
  };
  check_refused("b", runs.step("a", 6));
  CHECK_FALSE(fs::exists(runs.dir("b")));
  check_refused("a", "auto");
}

TEST_CASE("final weights with NaN are not written, and the error names the rank", "[faults]") {
  const Runs runs;
  Words words = spoiled("nan", {"--strategy", "zero3", "train.steps=4", "--save-final", runs.dir("w.safetensors")});
  words.push_back("checkpoint.every=0");
  const Said end = runs.train("a", words);
  INFO(end.err);
  CHECK(end.code == 1);
  CHECK_THAT(end.err, Catch::Contains("the weights are not written: parameter '") && Catch::Contains("(rank 0): "));
  CHECK_FALSE(fs::exists(runs.dir("w.safetensors")));
}

// A forward that overflowed made the running statistics infinite for good, and files held them.
TEST_CASE("a micro-batch whose contribution is not finite changes no buffer, and one warning names the buffer",
          "[faults]") {
  const Runs runs;
  const Words words = {"model.buffers=true", "model.nan_mean_at_step=3", "checkpoint.every=6"};
  const Said end = runs.train("a", words);
  INFO(end.err);
  REQUIRE(end.code == 0);
  const size_t at = end.err.find("buffer 'running_mean' is not finite");
  REQUIRE(at != std::string::npos);
  CHECK(end.err.find("is not finite", at + 30) == std::string::npos);
  CHECK(forwards_in(runs.step("a", 6)) == 10);  // of 2 ranks in 5 steps
  const Said verified = call_ddhost({"ckpt", "verify", runs.dir("a")});
  CHECK(verified.code == 0);
  CHECK_THAT(verified.out, !Catch::Contains("not finite"));
  // One rank with both micro-batches of a step has the same bits.
  Words alone = words;
  alone.insert(alone.end(), {"--nproc", "1", "train.grad_accum_steps=2"});
  REQUIRE(runs.train("b", alone).code == 0);
  CHECK(call_ddhost({"ckpt", "diff", runs.step("a", 6), runs.step("b", 6)}).code == 0);
}

TEST_CASE("a buffer that is not finite is in no checkpoint and no final weights", "[faults]") {
  const Runs runs;
  const Words words = {"model.buffers=true", "model.buffer_sync=step", "model.nan_mean_at_step=4"};
  Words saving = words, final_only = words;
  saving.insert(saving.end(), {"checkpoint.every=2"});
  final_only.insert(final_only.end(), {"--save-final", runs.dir("w.safetensors")});
  const Said end = runs.train("a", saving);
  INFO(end.err);
  CHECK(end.code == 1);
  CHECK_THAT(end.err,
             Catch::Contains("step 4 is not saved: buffer 'running_mean' is not finite from element 0 on (rank 0)") &&
                 Catch::Contains("DDH_SYNC_NEVER"));
  CHECK(runs.saved("a") == std::set<std::string>{"latest", "step-2"});
  const Said last = runs.train("b", final_only);
  INFO(last.err);
  CHECK(last.code == 1);
  CHECK_THAT(last.err, Catch::Contains("the weights are not written: buffer 'running_mean' is not finite"));
  CHECK_FALSE(fs::exists(runs.dir("w.safetensors")));
}

TEST_CASE("an older checkpoint with a buffer that is not finite is named, passed over and not exported", "[faults]") {
  const Runs runs;
  const Words words = {"model.buffers=true", "checkpoint.every=2", "checkpoint.keep_last=0", "run.quiet=false"};
  REQUIRE(runs.train("a", words).code == 0);
  put(runs.step("a", 6), "running_mean", HUGE_VALF);
  const Said verified = call_ddhost({"ckpt", "verify", runs.dir("a")});
  CHECK(verified.code == 1);
  CHECK_THAT(verified.out, Catch::Contains("no run can go on from it: buffer 'running_mean' is not finite"));
  const Said exported = call_ddhost({"export", runs.step("a", 6), runs.dir("out")});
  CHECK(exported.code == 1);
  CHECK_THAT(exported.err,
             Catch::Contains("buffer 'running_mean' is not finite") && Catch::Contains("export an earlier checkpoint"));
  Words again = words;
  again.insert(again.end(), {"--resume", "auto"});
  const Said resumed = runs.train("a", again);
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  CHECK_THAT(resumed.err, Catch::Contains("this checkpoint is skipped") && Catch::Contains("resumed after step 4"));
}

TEST_CASE("a buffer that the model keeps to itself may hold an infinity", "[faults]") {
  const Runs runs;
  const std::string model = test_plugin("toy_features");
  REQUIRE(runs.train("a", {"--model", model, "model.update_samples=24", "checkpoint.every=6"}).code == 0);
  put(runs.step("a", 6), "table", -HUGE_VALF);
  const Said verified = call_ddhost({"ckpt", "verify", runs.dir("a")});
  CHECK(verified.code == 0);
  CHECK_THAT(verified.out, Catch::Contains("1 value of 'table' is not finite"));
  CHECK(call_ddhost({"export", runs.step("a", 6), runs.dir("out")}).code == 0);
}
