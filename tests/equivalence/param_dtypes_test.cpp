// SPDX-License-Identifier: Apache-2.0
//
// Parameters that stay in fp32 in a low-precision run, and parameters that are stored in a low precision in files.
#include <cstring>

#include "ddh/sdk/kernels/lowp.hpp"
#include "equivalence/features.hpp"
#include "fixtures/harness/safetensors.hpp"

using namespace ddhost::test;

namespace {

const std::string kSafetensors = "final.safetensors";

GoldenFile tensors_of(const Result& result) {
  const TempFolder folder;
  std::ofstream(folder.file(kSafetensors), std::ios::binary) << result.weights;
  return read_safetensors(folder.file(kSafetensors));
}
bool is_matrix(const std::string& name) { return name.ends_with(".w1") || name.ends_with(".w2"); }

}  // namespace

TEST_CASE("fp32 gains and biases in a low-precision model: the same bits under every strategy", "[equivalence]") {
  const auto more = GENERATE(Options{"precision.compute=bf16"},
                             Options{"precision.compute=bf16", "train.grad_accum_steps=2", "model.programs=2"},
                             Options{"precision.compute=bf16", "--optimizer", "lamb", "model.encoder=forward_only"},
                             Options{"precision.compute=fp16", "precision.initial_scale_power=4"});
  check_all_equal(GENERATE(1, 2, 3), featured(joined({"model.fp32_params=true"}, more)));
}

TEST_CASE("fp32 parameters in a bf16 model with offloaded values and state, and on a device: the same bits",
          "[equivalence]") {
  const Options options = featured({"model.fp32_params=true", "precision.compute=bf16"});
  const Result reference = run(kReference, 2, options);
  const std::vector<Variant> ways = {
      {"fsdp", "shm", {"strategy.cpu_offload=true"}},
      {"fsdp", "loop", {"strategy.cpu_offload=true", "comm.windows=copy", "comm.poison=true"}},
      {"zero3", "shm", {"comm.windows=copy", "strategy.persistence_bytes=36", "strategy.reuse_bytes=100000"}},
      {"zero2", "shm", {"strategy.reduce_bucket_bytes=1500"}},
      {"zero3_offload", "shm", {"strategy.offload_optimizer.device=cpu", "strategy.offload_param.device=cpu"}},
      {"zero3_offload", "shm", {"strategy.offload_optimizer.device=cpu", "strategy.offload_optimizer.ratio=0.5"}},
      {"zero3_offload",
       "loop",
       {"strategy.offload_optimizer.device=nvme", "strategy.offload_param.device=nvme", nvme_path()}}};
  for (const Variant& way : ways) {
    const Result other = run(way, 2, options);
    check_same_bits(reference, other);
    check_plan(other);
  }
  const Result copied = run({"ddp", "loop", {"comm.windows=copy"}}, 2, options);
  for (const std::string& strategy : taken_strategies()) check_same_bits(copied, run(on_sim(strategy), 2, options));
}

TEST_CASE("a parameter that stays in fp32 takes four bytes and no master", "[equivalence][memory]") {
  const Options low = featured({"precision.compute=bf16"}), mixed = joined(low, {"model.fp32_params=true"});
  const Result all_low = run(kDdp, 1, low), some_fp32 = run(kDdp, 1, mixed);
  const uint64_t gains_and_biases = 3 * (padded(9) + padded(1)) + padded(31), frozen = 3 * padded(5);
  CHECK(peak_bytes(all_low, 0, "optim") - peak_bytes(some_fp32, 0, "optim") == gains_and_biases);
  CHECK(peak_bytes(some_fp32, 0, "param") - peak_bytes(all_low, 0, "param") == (gains_and_biases + frozen) / 2);
  CHECK(all_low.loss != some_fp32.loss);
}

TEST_CASE("a file has each parameter in the model's dtype for it, rounded to nearest even, under every strategy",
          "[equivalence]") {
  const auto stored = GENERATE(std::string("bf16"), std::string("fp16"));
  const Options options = featured({"model.stored=" + stored});
  const GoldenFile fp32 = tensors_of(run(kReference, 2, featured({})));
  const Result reference = run(kReference, 2, options);
  const GoldenFile low = tensors_of(reference);
  REQUIRE(low.tensors.size() == fp32.tensors.size());
  for (const auto& [name, tensor] : low.tensors) {
    INFO(name);
    REQUIRE(tensor.dtype == (is_matrix(name) ? (stored == "bf16" ? "BF16" : "F16") : "F32"));
    if (!is_matrix(name)) {
      CHECK((tensor.bytes == fp32.at(name).bytes));
      continue;
    }
    std::vector<uint16_t> expected, held(tensor.numel());
    for (const float x : fp32.at(name).f32())
      expected.push_back(stored == "bf16" ? ddh::Bf16::from_f32(x) : ddh::F16::from_f32(x));
    std::memcpy(held.data(), tensor.bytes.data(), tensor.bytes.size());
    CHECK(held == expected);
  }
  for (const Variant& way : taken_variants()) check_same_bits(reference, run(way, 2, options));
}

TEST_CASE("a run can start with a file of another dtype than the model's, and writes its values unchanged",
          "[equivalence]") {
  const TempFolder folder;
  const Result low = run(kReference, 2, featured({"model.stored=bf16"}));
  std::ofstream(folder.file(kSafetensors), std::ios::binary) << low.weights;
  const std::string from = "train.init_from=" + folder.file(kSafetensors);
  CHECK((run(kZero3, 3, featured({"model.stored=bf16", from}), 0).weights == low.weights));
  const GoldenFile widened = tensors_of(run(kZero3, 2, featured({from}), 0)), narrow = tensors_of(low);
  for (const auto& [name, tensor] : narrow.tensors) {
    if (!is_matrix(name)) continue;
    std::vector<uint16_t> held(tensor.numel());
    REQUIRE(tensor.bytes.size() == held.size() * sizeof(uint16_t));
    std::memcpy(held.data(), tensor.bytes.data(), tensor.bytes.size());
    const std::vector<float> values = widened.at(name).f32();
    for (size_t i = 0; i < held.size(); ++i) REQUIRE(values[i] == ddh::Bf16::to_f32(held[i]));
  }
}

TEST_CASE("values outside the range of fp16 are reported when a file of fp16 is written", "[equivalence]") {
  const Result fits = run(kReference, 1, featured({"model.stored=fp16"}), 0);
  CHECK(fits.err.find("range of fp16") == std::string::npos);
  const Result large = run(kReference, 1, featured({"model.stored=fp16", "model.deviation=70000"}), 0);
  CHECK_THAT(large.err, Catch::Contains("'layers.0.w1' holds values outside the range of fp16"));
}
