// SPDX-License-Identifier: Apache-2.0
//
// What KGAT owes its host: accumulation, empty batches, randomness that nothing changes, low precision, memory, FLOPs.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <ranges>
#include <set>

#include "fixtures/harness/counted_flops.hpp"
#include "fixtures/harness/random_directions.hpp"
#include "fixtures/harness/throws.hpp"
#include "golden/kgat_fixture.hpp"
#include "golden/ways.hpp"

using namespace ddhost::test;

namespace {

const std::vector<std::string> kAggregators = {"bi-interaction", "gcn", "graphsage"};
const std::vector<int64_t> kSamples = {3, 50, 120, 7, 61, 33};

struct Draw {
  int64_t step = 1, global_micro_batch = 0;
  double loss_scale = 1;
};

// The mean loss of samples of a program, whose gradients are then the driver's.
double train(ModelDriver& model, int32_t program, const std::vector<int64_t>& samples, Draw draw = {}) {
  model.global_micro_batch = draw.global_micro_batch;
  auto batch = model.create_batch(samples, program, draw.step);
  model.forward(batch.batch, program, draw.step);
  const auto [sum, count] = model.metric(program);
  model.backward(batch.batch, count > 0 ? draw.loss_scale / count : 1, program, draw.step);
  model.discard();
  model.destroy_batch(batch);
  return sum / count;
}

// Those that the program trains.
std::map<std::string, std::vector<float>> trained(ModelDriver& model, int32_t program) {
  std::map<std::string, std::vector<float>> out;
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    if (model.desc().programs[program]->trainable[i] != 0) out[model.name(i)] = model.grad(i);
  }
  return out;
}

}  // namespace

TEST_CASE("a second micro-batch adds its complete gradient once to KGAT") {
  ModelDriver model(ddh_entry_kgat, small_kgat({{"model.aggregator", GENERATE(from_range(kAggregators))}}));
  fill(model);
  const int32_t program = GENERATE(0, 1);
  train(model, program, {3, 50});
  const auto first = trained(model, program);
  train(model, program, {120, 7});
  const auto second = trained(model, program);
  auto a = model.create_batch({3, 50}, program, 1, 0), b = model.create_batch({120, 7}, program, 1, 1);
  model.forward(a.batch, program, 1, 0);
  model.forward(b.batch, program, 1, 1);  // both are alive at once
  model.backward(a.batch, 0.5, program, 1, 0);
  model.backward(b.batch, 0.5, program, 1, 1);
  for (const auto& [name, grad] : trained(model, program)) {
    CAPTURE(name, program);
    for (size_t k = 0; k < grad.size(); ++k) REQUIRE(grad[k] == first.at(name)[k] + second.at(name)[k]);
  }
  model.discard(0), model.discard(1);
  model.destroy_batch(a), model.destroy_batch(b);
}

TEST_CASE("a batch of KGAT without samples has zero gradients and no loss") {
  ModelDriver model(ddh_entry_kgat, small_kgat());
  fill(model);
  for (const int32_t program : {0, 1}) {
    auto batch = model.create_batch({}, program);
    model.forward(batch.batch, program);
    CHECK((model.metric(program) == std::pair<double, double>(0, 0)));
    model.backward(batch.batch, 1, program);
    for (const auto& [name, grad] : trained(model, program)) REQUIRE(grad == std::vector<float>(grad.size(), 0.0F));
    model.destroy_batch(batch);
  }
}

TEST_CASE("gradients of KGAT with dropout are slopes of its loss") {
  const std::string aggregator = GENERATE(from_range(kAggregators));
  ModelDriver model(
      ddh_entry_kgat,
      small_kgat({{"model.aggregator", aggregator}, {"model.message_dropout", "0.3"}, {"model.leaky_slope", "0.8"}}));
  fill(model);
  for (const int32_t program : {0, 1}) {
    train(model, program, kSamples);
    const auto gradient = trained(model, program);
    const auto loss = [&, program = program] { return train(model, program, kSamples); };
    for (const auto& [name, grad] : gradient) {
      CAPTURE(aggregator, name, program);
      CHECK(norm(grad) > 0);
      for (const Slope& slope : slopes_of(model, model.index(name), grad, 2e-3, loss))
        CHECK(slope.measured == Approx(slope.expected).margin(0.05 * slope.typical));
    }
  }
}

TEST_CASE("what is random in KGAT depends on the step and the micro-batch's place, not on a second forward") {
  const std::string sampling = GENERATE("users", "pairs");
  ModelDriver model(ddh_entry_kgat, small_kgat({{"model.message_dropout", "0.3"}, {"model.cf_sampling", sampling}}));
  fill(model);
  const double loss = train(model, 0, kSamples, {5, 3});
  const auto expected = trained(model, 0);
  CHECK(train(model, 0, kSamples, {6, 3}) != loss);
  CHECK(train(model, 0, kSamples, {5, 2}) != loss);
  model.recompute = true;
  CHECK(train(model, 0, kSamples, {5, 3}) == loss);
  CHECK(trained(model, 0) == expected);
}

TEST_CASE("draws of KGAT depend on the epoch and the sample, not on the step or the other samples") {
  const int32_t program = GENERATE(0, 1);
  ModelDriver model(ddh_entry_kgat, small_kgat({}));
  const auto rows = [&](const std::vector<int64_t>& samples, int64_t epoch, int64_t step) {
    model.epoch = epoch;
    auto batch = model.create_batch(samples, program, step);
    const std::vector<int32_t> out = reinterpret_cast<kgat::KgatBatch*>(batch.batch)->rows;
    model.destroy_batch(batch);
    return out;
  };
  CHECK(rows(kSamples, 2, 5) == rows(kSamples, 2, 6));
  CHECK(rows(kSamples, 2, 5) != rows(kSamples, 3, 5));
  for (const int64_t sample : kSamples) {
    const std::vector<int32_t> all = rows(kSamples, 2, 5);
    for (const int32_t node : rows({sample}, 2, 9)) CHECK(std::count(all.begin(), all.end(), node) > 0);
  }
}

TEST_CASE("draws of KGAT are right, and those of pairs take each pair once an epoch") {
  ModelDriver model(ddh_entry_kgat, small_kgat({{"model.cf_sampling", "pairs"}, {"model.kg_sampling", "triples"}}));
  const kgat::KgatData& data = kgat_of(model).data();
  const kgat::Graph& graph = kgat_of(model).graph();
  const auto draw = [&](int32_t program) {
    std::vector<int64_t> samples;
    for (uint64_t i = 0; i < model.desc().programs[program]->n_samples; ++i) samples.push_back(static_cast<int64_t>(i));
    auto batch = model.create_batch(samples, program);
    const kgat::KgatBatch copy = *reinterpret_cast<kgat::KgatBatch*>(batch.batch);
    model.destroy_batch(batch);
    return copy;
  };
  const kgat::KgatBatch pairs = draw(0), triples = draw(1);
  std::set<std::pair<int32_t, int32_t>> seen;
  for (size_t i = 0; i < static_cast<size_t>(pairs.B); ++i) {
    const int32_t user = pairs.rows[i] - static_cast<int32_t>(data.n_entities);
    const auto& items = data.train[static_cast<size_t>(user)];
    seen.emplace(user, pairs.rows[static_cast<size_t>(pairs.B) + i]);
    CHECK(std::count(items.begin(), items.end(), pairs.rows[static_cast<size_t>(pairs.B) + i]) == 1);
    CHECK(std::count(items.begin(), items.end(), pairs.rows[2 * static_cast<size_t>(pairs.B) + i]) == 0);
  }
  CHECK(seen.size() == static_cast<size_t>(pairs.B));
  int64_t n_triples = 0;
  for (const kgat::RelationGroup& group : triples.groups) {
    for (int64_t i = 0; i < group.n; ++i, ++n_triples) {
      const auto node = [&](int64_t part) {
        return triples.rows[static_cast<size_t>(group.first_row + part * group.n + i)];
      };
      REQUIRE(graph.has_edge(node(0), group.relation, node(1)));
      REQUIRE(!graph.has_edge(node(0), group.relation, node(2)));
    }
  }
  CHECK(n_triples == graph.n_edges());
}

TEST_CASE("over epochs all users and all heads of KGAT have as many samples, but for one") {
  const int32_t program = GENERATE(0, 1);
  ModelDriver model(ddh_entry_kgat, small_kgat({}));
  std::vector<int64_t> samples(model.desc().programs[program]->n_samples);
  std::iota(samples.begin(), samples.end(), 0);
  std::map<int32_t, int64_t> n_samples;
  for (model.epoch = 0; model.epoch < 3; ++model.epoch) {
    auto batch = model.create_batch(samples, program);
    const kgat::KgatBatch& drawn = *reinterpret_cast<kgat::KgatBatch*>(batch.batch);
    if (program == 0) {
      for (size_t i = 0; i < samples.size(); ++i) ++n_samples[drawn.rows[i]];
    }
    for (const kgat::RelationGroup& group : drawn.groups) {
      for (int64_t i = 0; i < group.n; ++i) ++n_samples[drawn.rows[static_cast<size_t>(group.first_row + i)]];
    }
    model.destroy_batch(batch);
  }
  const auto [least, most] = std::ranges::minmax(n_samples | std::views::values);
  CAPTURE(program, least, most);
  CHECK(n_samples.size() == (program == 0 ? kgat_of(model).data().train.size() : kgat_of(model).graph().heads.size()));
  CHECK(samples.size() % n_samples.size() > 0);  // an epoch alone has more samples of some
  CHECK(most - least <= 1);
}

TEST_CASE("a graph of KGAT whose nodes or relations exceed 31 bits is refused") {
  kgat::KgatData data;
  data.train = data.test = {{0}};
  data.n_items = 1, data.n_entities = std::numeric_limits<int32_t>::max(), data.n_relations = 1;
  CHECK_THROWS_WITH(kgat::Graph(data), Catch::Contains("2147483648 nodes") && Catch::Contains("2^31 - 1"));
  data.n_entities = 1, data.n_relations = int64_t{1} << 30;
  CHECK_THROWS_WITH(kgat::Graph(data), Catch::Contains("2147483650 relations"));
}

TEST_CASE("KGAT in low precision is as far from fp32 as its roundings allow") {
  const std::string compute = GENERATE("bf16", "fp16");
  const double roundoff = compute == "bf16" ? 0x1p-8 : 0x1p-11;
  // Without the kink of LeakyReLU: a rounding across it changes a gradient by as much as the kink does.
  ModelDriver exact(ddh_entry_kgat, small_kgat({{"model.leaky_slope", "1"}}));
  ModelDriver model(ddh_entry_kgat, small_kgat({{"precision.compute", compute}, {"model.leaky_slope", "1"}}));
  fill(exact), fill(model);
  for (const int32_t program : {0, 1}) {
    constexpr Draw kScaled{1, 0, 4096};  // gradients of fp16 stay above its smallest numbers
    const double expected = train(exact, program, kSamples, kScaled);
    const double loss = train(model, program, kSamples, kScaled);
    CHECK(loss == Approx(expected).epsilon(4 * roundoff));
    CHECK(loss != expected);  // it is rounded at all
    const auto reference = trained(exact, program);
    for (const auto& [name, grad] : trained(model, program)) {
      CAPTURE(name, compute);
      CHECK(relative_distance(grad, reference.at(name)) < 16 * roundoff);
    }
  }
}

TEST_CASE("a recomputed KGAT keeps less between forward and backward") {
  const auto kept = [](bool recompute) {
    ModelDriver model(ddh_entry_kgat, small_kgat({{"model.embed_dim", "64"}, {"model.layers", "[64, 64, 64]"}}));
    fill(model);
    model.recompute = recompute;
    auto batch = model.create_batch(kSamples);
    model.forward(batch.batch);
    const int64_t bytes = model.host().bytes(DDH_TAG_ACT);
    model.discard();
    model.destroy_batch(batch);
    CHECK(model.host().bytes(DDH_TAG_ACT) == 0);
    return bytes;
  };
  CHECK(kept(true) * 2 < kept(false));
}

TEST_CASE("the estimate of KGAT is what a forward keeps, and the products that run and the sums over edges") {
  const std::string aggregator = GENERATE(from_range(kAggregators)), way = GENERATE("aten", "torch");
  CAPTURE(aggregator, way);
  const ModelDriver::Options options = small_kgat({{"model.aggregator", aggregator},
                                                   {"model.embed_dim", "64"},
                                                   {"model.relation_dim", "32"},
                                                   {"model.layers", "[64, 48]"}});
  ModelDriver model(ddh_entry_kgat, computed_by(way, options));
  fill(model);
  const double E = static_cast<double>(kgat_of(model).graph().n_edges());
  const std::vector<int64_t> samples(256, 3);
  const double sums = 2 * E * (64 + 64);  // over edges, of a layer's width in
  for (const int32_t program : {0, 1}) {
    const ddh_estimate estimate = model.estimate(program, 256);
    const auto estimated = static_cast<double>(estimate.activation_bytes);
    const double forward = estimate.forward_flops, backward = estimate.backward_flops;
    auto batch = model.create_batch(samples, program);
    const CountedFlops products;
    model.forward(batch.batch, program);
    const double forward_products = CountedFlops::total();
    const auto kept = static_cast<double>(model.host().bytes(DDH_TAG_ACT));
    CAPTURE(program, kept, estimated);
    CHECK(kept == Approx(estimated).epsilon(0.03));
    CountedFlops::total() = 0;
    model.backward(batch.batch, 1, program);
    // Scores and squares of users and items; of triples, the sums of rows.
    const double pairs = 256.0 * (64 + 64 + 48), rows = 3 * 256 * 64;
    const ddh_estimate of_torch = ModelDriver(ddh_entry_kgat, computed_by("torch", options)).estimate(program, 256);
    CHECK(forward == of_torch.forward_flops);
    CHECK(backward == of_torch.backward_flops);
    if (way == "torch") {  // else threads of the model's own run products
      CHECK(forward_products > 0);
      CHECK(forward == Approx(forward_products + (program == 0 ? sums + 10 * pairs : 0)).epsilon(0.02));
      CHECK(backward == Approx(CountedFlops::total() + (program == 0 ? sums + 15 * pairs : rows)).epsilon(0.02));
    }
    model.discard();
    model.destroy_batch(batch);
  }
}

TEST_CASE("BPR-MF is KGAT without its graph") {
  ModelDriver model(ddh_entry_kgat, small_kgat({{"model.variant", "mf"}}));
  REQUIRE(model.desc().n_params == 1);
  CHECK(kgat_of(model).program("kg") == -1);
  CHECK(kgat_of(model).program("attention") == -1);
  fill(model);
  const double first = train(model, 0, kSamples);
  std::vector<float>& table = model.value(size_t{0});
  for (size_t i = 0; i < table.size(); ++i) table[i] -= model.grad(size_t{0})[i];
  CHECK(train(model, 0, kSamples) < first);
}

TEST_CASE("held-out items leave the training and are evaluated instead of the test items") {
  const ModelDriver::Options none = small_kgat(), part = small_kgat({{"model.validation", "0.25"}});
  ModelDriver all(ddh_entry_kgat, none), cut(ddh_entry_kgat, part);
  const kgat::KgatData &before = kgat_of(all).data(), &after = kgat_of(cut).data();
  size_t n_held = 0, n_train = 0;
  for (size_t u = 0; u < before.train.size(); ++u) {
    std::vector<int32_t> both = after.train[u];
    both.insert(both.end(), after.test[u].begin(), after.test[u].end());
    std::sort(both.begin(), both.end());
    CHECK(both == before.train[u]);
    n_held += after.test[u].size(), n_train += before.train[u].size();
  }
  CHECK(static_cast<double>(n_held) == Approx(0.25 * static_cast<double>(n_train)).epsilon(0.1));
}
