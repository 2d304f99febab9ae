// SPDX-License-Identifier: Apache-2.0
//
// Memory by tag equals the strategy's plan, and the plan equals the formula on its page.
#include "equivalence/variants.hpp"

using namespace ddhost::test;

namespace {

// Bytes of the toy model's parameters, each padded to 64 elements: vocab 31, width 5, hidden 9, three layers.
uint64_t padded(uint64_t numel) { return (numel + 63) / 64 * 64 * 4; }
const uint64_t kTrainedBytes =
    padded(31 * 5) + 3 * (2 * padded(9 * 5) + padded(9) + padded(1) + padded(3)) + padded(31);
const uint64_t kFrozenBytes = 3 * padded(5);

}  // namespace

TEST_CASE("memory by tag equals the strategy's plan to the byte", "[memory]") {
  const auto options = GENERATE(
      from_range(selected(4, std::vector<Options>{{},
                                                  {"train.grad_accum_steps=2", "train.reduce_order=micro_first"},
                                                  {"precision.compute=bf16", "model.repeat=1", "train.recompute=1"},
                                                  {"--optimizer", "muon", "train.grad_accum_steps=2"},
                                                  {"train.grad_accum_steps=2"},
                                                  {"precision.compute=bf16"},
                                                  {"model.repeat=1"},
                                                  {"train.recompute=1"}})));
  for (const Variant& way : taken_variants()) check_plan(run(way, 2, options));
}

TEST_CASE("ddp holds 16 bytes and zero1 8 + 8/N bytes for each padded parameter", "[memory]") {
  for (const int world : {1, 2}) {
    const auto N = static_cast<uint64_t>(world);
    const Result ddp = run(kDdp, world, {}), zero1 = run(kZero1, world, {});
    uint64_t zero1_optim = 0, unique = 0;
    for (size_t r = 0; r < N; ++r) {
      CHECK(peak_bytes(ddp, r, "param") == kTrainedBytes + kFrozenBytes);
      CHECK(peak_bytes(ddp, r, "grad") == kTrainedBytes);
      CHECK(peak_bytes(ddp, r, "optim") == 2 * kTrainedBytes);
      CHECK(peak_bytes(zero1, r, "param") == kTrainedBytes + kFrozenBytes);
      CHECK(peak_bytes(zero1, r, "grad") == kTrainedBytes);
      zero1_optim += peak_bytes(zero1, r, "optim");
    }
    CHECK(zero1_optim == 2 * kTrainedBytes);
    for (const char* tag : {"param", "grad", "optim"}) {
      unique += zero1.record.summary.at("unique_peak_bytes").at(tag).get<uint64_t>();
    }
    CHECK(unique == kTrainedBytes + kFrozenBytes + N * kTrainedBytes + 2 * kTrainedBytes);  // 4 + 4 N + 8 bytes
  }
}

TEST_CASE("zero3 keeps 16/N bytes for each padded parameter and what is in flight", "[memory]") {
  const Result result = run(kZero3, 2, {});
  uint64_t segments = 0;
  for (size_t r = 0; r < 2; ++r) {
    const auto& memory = result.record.summary.at("ranks").at(r).at("memory_bytes");
    segments += memory.at("param").at("now").get<uint64_t>();
  }
  CHECK(segments == kTrainedBytes + kFrozenBytes);
  const uint64_t layer = 2 * padded(9 * 5) + padded(9) + padded(1) + padded(3);
  const uint64_t grads = peak_bytes(result, 0, "grad") + peak_bytes(result, 1, "grad");
  // The segments but that of the tied gradient, whose sum stays in place; this gradient and a buffer, on each rank. Two
  // buffers would take more than zero1's gradients.
  const uint64_t tied = padded(31 * 5);
  CHECK(grads == kTrainedBytes - tied + 2 * (tied + layer));
}

TEST_CASE("muon keeps one number for each element of a matrix and two for the rest", "[memory]") {
  const uint64_t matrices = 3 * 2 * padded(9 * 5);  // the embedding is adamw's
  for (const Variant& way : {kDdp, kZero3}) {
    const Result result = run(way, 2, {"--optimizer", "muon"});
    uint64_t bytes = 0;
    for (size_t r = 0; r < 2; ++r) bytes += peak_bytes(result, r, "optim");
    CHECK(bytes == (way.strategy == kDdp.strategy ? 2 : 1) * (2 * kTrainedBytes - matrices));
  }
}
