// SPDX-License-Identifier: Apache-2.0
//
// Numbers of DeepSpeed's own tests of ZeRO, which can be worked out by hand: eltwise weights
// (tests/fixtures/models/eltwise_model.cpp) under every strategy. Gradients are read off an update of plain descent
// with rate 1.
#include <cmath>

#include "equivalence/variants.hpp"
#include "fixtures/harness/built.hpp"
#include "fixtures/harness/safetensors.hpp"

using namespace ddhost::test;

namespace {

using Values = std::map<std::string, std::vector<float>>;

const std::string kEltwise = test_plugin("eltwise");
const Options kDescent = {"--optimizer",
                          "sgd",
                          "train.clip_norm=0",
                          "schedule.type=constant",
                          "data.micro_batch=1",
                          "optimizer.lr=1",
                          "schedule.warmup_steps=0"};

Values values_of(const Result& result) {
  const TempFolder folder;
  std::ofstream(folder.file("w.safetensors"), std::ios::binary) << result.weights;
  Values out;
  const GoldenFile file = read_safetensors(folder.file("w.safetensors"));
  for (const auto& [name, tensor] : file.tensors) out[name] = tensor.f32();
  return out;
}

std::string weight(int layer) { return "layers." + std::to_string(layer) + ".weight"; }

void write_weights(const std::string& path, const Values& values, const std::vector<int64_t>& shape) {
  std::map<std::string, GoldenTensor> tensors;
  for (const auto& [name, x] : values) {
    GoldenTensor& tensor = tensors[name] = {"F32", shape, {}};
    tensor.bytes.resize(x.size() * sizeof(float));
    std::memcpy(tensor.bytes.data(), x.data(), tensor.bytes.size());
  }
  write_safetensors(path, tensors);
}

// `first` for the first `n_first` elements, then `second`.
std::vector<float> two_parts(size_t n_first, float first, size_t n_second, float second) {
  std::vector<float> out(n_first, first);
  out.insert(out.end(), n_second, second);
  return out;
}

Result run_eltwise(const std::string& strategy, int world, const Options& options, int steps) {
  return run({{strategy, "shm", {}}, world, options, steps, kEltwise});
}

}  // namespace

// TestZero3ParamPartitioningBase: 8 of 15 elements of weight i are i, the other 7 are 2 i.
TEST_CASE("three eltwise weights have the activations, loss and gradients that are worked out by hand", "[parity]") {
  const TempFolder folder;
  Values first;
  for (int i = 1; i <= 3; ++i) first[weight(i - 1)] = two_parts(8, static_cast<float>(i), 7, static_cast<float>(2 * i));
  write_weights(folder.file("first.safetensors"), first, {3, 5});
  // hidden1 = 1 | 2, hidden2 = 2 | 8, y = 6 | 48; the loss's gradient of y is 1.
  const Values gradients = {
      {weight(2), two_parts(8, 2, 7, 8)}, {weight(1), two_parts(8, 3, 7, 12)}, {weight(0), two_parts(8, 6, 7, 24)}};
  const Options options = joined(kDescent, {"train.init_from=" + folder.file("first.safetensors")});
  for (const std::string& strategy : taken_strategies()) {
    for (const int world : {1, 2, 3}) {
      const Result result = run_eltwise(strategy, world, options, 1);
      INFO(result.command);
      CHECK(result.record.steps[0].at("loss").get<double>() == 8 * 5 + 7 * 47);
      const Values last = values_of(result);
      for (const auto& [name, gradient] : gradients) {
        for (size_t i = 0; i < 15; ++i) CHECK(first.at(name)[i] - last.at(name)[i] == gradient[i]);
      }
    }
  }
}

// The same test without zero_grad: the sum of k micro-batches is k times the gradient. The mean over them is taken, so that a
// rate of k shows the sum.
TEST_CASE("gradients of N equal micro-batches add up to N times one gradient", "[parity]") {
  const TempFolder folder;
  Values first;
  for (int i = 1; i <= 3; ++i) first[weight(i - 1)] = two_parts(8, static_cast<float>(i), 7, static_cast<float>(2 * i));
  write_weights(folder.file("first.safetensors"), first, {3, 5});
  const std::string order = GENERATE("rank_first", "micro_first");
  for (const std::string& strategy : taken_strategies()) {
    for (const int k : {1, 2, 3}) {
      const Options options = joined(kDescent, {"train.init_from=" + folder.file("first.safetensors"),
                                                "train.grad_accum_steps=" + std::to_string(k),
                                                "optimizer.lr=" + std::to_string(k), "train.reduce_order=" + order});
      const Result result = run_eltwise(strategy, 2, options, 1);
      INFO(result.command);
      const std::vector<float> last = values_of(result).at(weight(0));
      for (size_t i = 0; i < 15; ++i) {
        // The mean over 2 k samples is rounded once: 1 / 6 is no fp32 number.
        CHECK(first.at(weight(0))[i] - last[i] == Approx(static_cast<float>(k) * (i < 8 ? 6.0F : 24.0F)).epsilon(2e-7));
      }
    }
  }
}

// TestZero3ParamPartitioningLargeParam: what lies on other ranks shows in the activations.
TEST_CASE("a large parameter is seen whole by every rank, and each gets its part of the gradient", "[parity]") {
  const TempFolder folder;
  const Values first = {{weight(0), two_parts(4050, 2, 4050, 3)}};
  write_weights(folder.file("first.safetensors"), first, {90, 90});
  const Options options = joined(kDescent, {"train.init_from=" + folder.file("first.safetensors"), "model.layers=1",
                                            "model.rows=90", "model.columns=90"});
  for (const std::string& strategy : taken_strategies()) {
    for (const int world : {2, 3}) {
      const Result result = run_eltwise(strategy, world, options, 1);
      INFO(result.command);
      CHECK(result.record.steps[0].at("loss").get<double>() == 4050 * 1 + 4050 * 2);
      CHECK((values_of(result).at(weight(0)) == two_parts(4050, 1, 4050, 2)));
    }
  }
}

// test_zero_optim_overflow
TEST_CASE("a bf16 run whose gradients are all bad keeps its weights, and writes none when it may apply them",
          "[parity]") {
  const std::string bad = GENERATE("nan", "inf", "-inf");
  const Options options = joined(kDescent, {"precision.compute=bf16", "model.bad_gradients=" + bad});
  for (const std::string& strategy : taken_strategies()) {
    const Result kept = run_eltwise(strategy, 2, options, 8);
    INFO(kept.command);
    for (const auto& step : kept.record.steps) CHECK(step.at("skipped").get<bool>());
    for (const auto& [name, values] : values_of(kept)) CHECK((values == std::vector<float>(15, 1)));

    // Applied in every step, of which the first five are named; values that are not finite are never written to a file.
    const Result lost =
        attempt({{strategy, "shm", {}}, 2, joined(options, {"train.skip_nonfinite=false"}), 8, kEltwise});
    INFO(lost.command << "\n" << lost.err);
    CHECK(lost.code == 1);
    CHECK_THAT(lost.err,
               Catch::Contains("step 5: ") && Catch::Contains("train.skip_nonfinite is off, so it is applied"));
    CHECK_THAT(lost.err, Catch::Contains("the weights are not written") && Catch::Contains(weight(0)));
  }
}

// EmptyParameterGroup
TEST_CASE("a unit without parameters changes nothing", "[parity]") {
  const Options options = {"train.grad_accum_steps=2"};
  for (const std::string& strategy : taken_strategies()) {
    const Result without = run_eltwise(strategy, 3, options, 5),
                 with_it = run_eltwise(strategy, 3, joined(options, {"model.empty_unit=true"}), 5);
    INFO(with_it.command);
    CHECK(with_it.loss == without.loss);
    CHECK((with_it.weights == without.weights));
    check_plan(with_it);
  }
}

TEST_CASE("a parameter without elements is refused by its name, on all ranks at once", "[parity]") {
  for (const std::string& strategy : taken_strategies()) {
    const Result result = attempt({{strategy, "shm", {}}, 3, {"model.zero_sized=true"}, 1, kEltwise});
    CHECK(result.code == 1);
    CHECK_THAT(result.err, Catch::Contains("'layers.0.weight' has a dimension of 0"));
  }
}

// More units than elements of a block, fewer blocks than ranks: most segments are empty.
TEST_CASE("parameters of one element on more ranks than parameters train alike", "[parity]") {
  const Options options = joined(kDescent, {"model.rows=1", "model.columns=1", "model.layers=7", "optimizer.lr=0.01"});
  for (const int world : {3, 8}) {
    const Result reference = run({kReference, world, options, 5, kEltwise});
    for (const std::string& strategy : taken_strategies()) {
      const Result other = run_eltwise(strategy, world, options, 5);
      check_same_bits(reference, other);
      check_plan(other);
    }
  }
}
