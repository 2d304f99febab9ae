// SPDX-License-Identifier: Apache-2.0
//
// The example diloco, from its file, against 200 steps that a script computed in fp64 from the paper
// (tests/data/make_diloco_reference.py): losses and final parameters, with groups of one and of two ranks and as local SGD.
#include <catch2/catch.hpp>

#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/safetensors.hpp"

using namespace ddhost::test;

namespace {

struct Case {
  int sync_every, shard_size;
  double outer_lr, outer_momentum;
  std::vector<double> losses;  // of every tenth step
  std::vector<double> params;  // the weight by rows, then the bias
};
const Case kCases[] = {
#include "data/diloco_reference.inc"
};

constexpr int kInputs = 6, kOutputs = 3, kBatch = 8, kRanks = 4, kSteps = 200;

GoldenTensor tensor_of(const std::vector<int64_t>& shape, const std::vector<float>& values) {
  GoldenTensor out{"F32", shape, std::vector<char>(values.size() * sizeof(float))};
  std::memcpy(out.bytes.data(), values.data(), out.bytes.size());
  return out;
}

void write_first_values(const std::string& path) {
  std::vector<float> weight;
  for (int k = 0; k < kInputs * kOutputs; ++k) weight.push_back(static_cast<float>(k * 37 % 101 - 50) / 1024);
  write_safetensors(path, {{"weight", tensor_of({kInputs, kOutputs}, weight)},
                           {"bias", tensor_of({kOutputs}, std::vector<float>(kOutputs, 0.0F))}});
}

void write_order(const std::string& path) {
  std::vector<int64_t> samples;
  for (int64_t n = 0; n < int64_t{kSteps} * kRanks * kBatch; ++n) samples.push_back(n * 7 % 4096);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(samples.data()),
             static_cast<std::streamsize>(samples.size() * sizeof(int64_t)));
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double out = 0;
  for (size_t i = 0; i < a.size(); ++i) out = std::max(out, std::abs(a[i] - b[i]));
  return out;
}

}  // namespace

TEST_CASE("200 steps of diloco are those of the paper's algorithm within 1e-5", "[cli]") {
  const TempFolder folder;
  write_first_values(folder.file("first.safetensors"));
  write_order(folder.file("order"));
  const auto word = [](const char* key, const auto& value) {
    std::ostringstream out;
    out << key << "=" << value;
    return out.str();
  };
  for (const Case& given : kCases) {
    const std::string run = folder.file(word("every", given.sync_every) + word("size", given.shard_size));
    const Said said = call_ddhost({"--model",
                                   test_plugin("linear_model"),
                                   word("model.inputs", kInputs),
                                   word("model.outputs", kOutputs),
                                   "--strategy",
                                   test_plugin("diloco"),
                                   word("strategy.sync_every", given.sync_every),
                                   word("strategy.shard_size", given.shard_size),
                                   word("strategy.outer_lr", given.outer_lr),
                                   word("strategy.outer_momentum", given.outer_momentum),
                                   "--nproc",
                                   std::to_string(kRanks),
                                   "--comm",
                                   "shm",
                                   word("train.steps", kSteps),
                                   word("data.micro_batch", kBatch),
                                   "data.order=" + folder.file("order"),
                                   "train.init_from=" + folder.file("first.safetensors"),
                                   "run.seed=42",
                                   "--optimizer",
                                   "adamw",
                                   "optimizer.lr=0.01",
                                   "optimizer.betas=[0.9,0.99]",
                                   "optimizer.weight_decay=0.1",
                                   "train.clip_norm=0.5",
                                   "schedule.type=constant",
                                   "schedule.warmup_steps=0",
                                   "run.quiet=true",
                                   "run.sample_tokens=0",
                                   "monitor.every=1",
                                   "run.dir=" + run,
                                   "--save-final",
                                   run + ".safetensors"});
    INFO(run << ": " << said.err);
    REQUIRE(said.code == 0);

    std::vector<double> losses, params;
    const RunRecord record = read_run(run);
    REQUIRE(record.steps.size() == kSteps);
    for (size_t i = 9; i < record.steps.size(); i += 10) losses.push_back(record.steps[i].at("loss").get<double>());
    const GoldenFile file = read_safetensors(run + ".safetensors");
    for (const char* name : {"weight", "bias"})
      for (const float value : file.at(name).f32()) params.push_back(static_cast<double>(value));
    CHECK(largest_difference(losses, given.losses) < 1e-5);
    CHECK(largest_difference(params, given.params) < 1e-5);
    CHECK(largest_difference(params, std::vector<double>(params.size(), 0.0)) > 0.5);  // they have learned something
  }
}

TEST_CASE("diloco with fp16, whose loss scale all ranks decide in every step, is refused", "[cli]") {
  const TempFolder folder;
  const Said said = call_ddhost({"--model", toy_model(), "--strategy", test_plugin("diloco"), "--nproc", "2",
                                 "train.steps=2", "precision.compute=fp16", "run.dir=" + folder.file("run")});
  INFO(said.err);
  CHECK(said.code == 1);
  CHECK_THAT(said.err,
             Catch::Contains("with strategy 'diloco' all ranks agree only after every 50 steps, and a loss scale is "
                             "decided by all ranks in every step; set precision.compute=bf16 or fp32"));
}
