// SPDX-License-Identifier: Apache-2.0
//
// The simplified variant of KGAT against its formula, written out in double, and its gradients against slopes of the loss.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/harness/counted_flops.hpp"
#include "fixtures/harness/random_directions.hpp"
#include "golden/kgat_fixture.hpp"
#include "golden/ways.hpp"

using namespace ddhost::test;

namespace {

using Matrix = std::vector<std::vector<double>>;

ModelDriver::Options simplified(const ModelDriver::Options& more = {}) {
  ModelDriver::Options all = small_kgat({{"model.variant", "simplified"}, {"model.leaky_slope", "0.2"}});
  for (const auto& [key, value] : more) all[key] = value;
  return all;
}

// w (rows, columns) from element `first` of a parameter, times x.
std::vector<double> times(const std::vector<float>& w, size_t first, size_t rows, const std::vector<double>& x) {
  std::vector<double> y(rows);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < x.size(); ++c) y[r] += static_cast<double>(w[first + r * x.size() + c]) * x[c];
  }
  return y;
}

// A layer by its formula. Every edge counts for which `takes(head, relation, tail)`.
template <class Takes>
Matrix layer(ModelDriver& model, const std::string& prefix, size_t out, const Matrix& x, const Takes& takes) {
  const kgat::Graph& graph = kgat_of(model).graph();
  const std::vector<float>&W = model.value(prefix + "W.weight"), &W_r = model.value(prefix + "W_r"),
        &w = model.value(prefix + "attention.weight"), &b = model.value(prefix + "attention.bias");
  Matrix y;
  for (size_t i = 0; i < x.size(); ++i) {
    const std::vector<double> p = times(W, 0, out, x[i]);
    std::vector<double> z(out);
    for (auto e = static_cast<size_t>(graph.row_begin[i]); e < static_cast<size_t>(graph.row_begin[i + 1]); ++e) {
      if (!takes(graph.head[e], graph.relation[e], graph.tail[e])) continue;
      const std::vector<double>& x_j = x[static_cast<size_t>(graph.tail[e])];
      const auto relation = static_cast<size_t>(graph.relation[e]);
      const std::vector<double> m =
          relation < 2 ? times(W, 0, out, x_j) : times(W_r, (relation - 2) * out * x_j.size(), out, x_j);
      double score = static_cast<double>(b[0]);
      for (size_t c = 0; c < out; ++c) score += static_cast<double>(w[c]) * p[c] * m[c];
      for (size_t c = 0; c < out; ++c) z[c] += (score > 0 ? score : 0.2 * score) * m[c];
    }
    double squares = 0;
    for (double& value : z) value = std::max(value, 0.0), squares += value * value;
    for (double& value : z) value *= squares > 0 ? 5 / std::sqrt(squares) : 0;
    y.push_back(z);
  }
  return y;
}

double train(ModelDriver& model, const std::vector<int64_t>& samples) {
  auto batch = model.create_batch(samples);
  model.forward(batch.batch);
  const auto [sum, count] = model.metric(0);
  model.backward(batch.batch, 1 / count);
  model.discard();
  model.destroy_batch(batch);
  return sum / count;
}

const std::vector<int64_t> kSamples = {3, 50, 120, 7, 61, 33};

}  // namespace

TEST_CASE("an option that the variant of KGAT does not read is refused") {
  const auto check_refused = [](const std::string& variant, const std::string& option, const std::string& value) {
    const ModelDriver::Options options = {
        {"model.dataset", "made_up"}, {"model.variant", variant}, {"model." + option, value}};
    CHECK_THROWS_WITH(ModelDriver(ddh_entry_kgat, options),
                      Catch::Contains("model." + option + " has no effect in model.variant=" + variant));
  };
  check_refused("kgat", "kg_edges", "items");
  for (const char* variant : {"simplified", "mf"}) {
    check_refused(variant, "aggregator", "gcn");
    check_refused(variant, "kg_sampling", "triples");
    check_refused(variant, "relation_dim", "65");
    check_refused(variant, "l2_kg", "1e-4");
  }
  check_refused("mf", "layers", "[64, 32]");
  check_refused("mf", "message_dropout", "0.2");
  check_refused("mf", "leaky_slope", "0.2");
}

TEST_CASE("the simplified KGAT has the representations of its formula") {
  const bool all = GENERATE(true, false);
  const std::string way = GENERATE("aten", "torch");
  ModelDriver model(ddh_entry_kgat, computed_by(way, simplified({{"model.kg_edges", all ? "all" : "items"}})));
  fill(model, 2);
  const auto items = static_cast<int32_t>(kgat_of(model).data().n_items);
  int64_t n_taken = 0;
  const auto takes = [&](int32_t head, int32_t relation, int32_t tail) {
    const bool is_taken = relation < 2 || all || (head < items && tail < items);
    n_taken += is_taken ? 1 : 0;
    return is_taken;
  };
  const std::vector<float>& table = model.value("entity_user_embed.weight");
  const size_t d = 8, N = table.size() / d;
  std::vector<Matrix> x(1);
  for (size_t i = 0; i < N; ++i)
    x[0].emplace_back(table.begin() + static_cast<int64_t>(i * d), table.begin() + static_cast<int64_t>((i + 1) * d));
  x.push_back(layer(model, "convs.0.", 8, x[0], takes));
  x.push_back(layer(model, "convs.1.", 4, x[1], takes));
  CHECK(kgat_of(model).simplified().n_edges() * 2 == n_taken);
  CHECK((kgat_of(model).simplified().n_pairs() > 0) == all);  // no made-up edge leads from item to item
  auto batch = model.create_batch(kSamples);
  model.forward(batch.batch);
  const std::vector<float> rows = values_of(kgat_of(model).representations(0));
  REQUIRE(rows.size() == N * 20);
  double largest = 0, sum = 0;
  for (size_t i = 0, at = 0; i < N; ++i) {
    for (const Matrix& part : x) {
      for (const double value : part[i]) {
        largest = std::max(largest, std::abs(value - static_cast<double>(rows[at++])));
        sum += std::abs(value);
      }
    }
  }
  CHECK(largest < 2e-5);
  CHECK(sum > static_cast<double>(N));  // not all are zero
  model.discard();
  model.destroy_batch(batch);
}

TEST_CASE("gradients of the simplified KGAT are slopes of its loss") {
  const char* const dropout = GENERATE("0.0", "0.3");
  const std::string way = GENERATE("aten", "torch");
  ModelDriver model(ddh_entry_kgat,
                    computed_by(way, simplified({{"model.message_dropout", dropout}, {"model.leaky_slope", "0.9"}})));
  fill(model, 2);
  train(model, kSamples);
  const std::vector<std::vector<float>> gradient = gradients(model);
  for (size_t p = 0; p < gradient.size(); ++p) {
    CAPTURE(model.name(p), dropout);
    const double length = norm(gradient[p]), h = 1e-3 / std::max(1.0, length);
    const std::vector<float> at = model.value(p);
    const auto shifted_loss = [&](double by) {
      for (size_t k = 0; k < at.size(); ++k)
        model.value(p)[k] =
            static_cast<float>(static_cast<double>(at[k]) + by * static_cast<double>(gradient[p][k]) / length);
      return train(model, kSamples);
    };
    const double slope = (shifted_loss(h) - shifted_loss(-h)) / (2 * h);
    model.value(p) = at;
    CHECK(length > 0);
    CHECK(slope == Approx(length).epsilon(1e-2));
  }
}

TEST_CASE("the simplified KGAT's loss has the gradient's slope in any direction") {
  ModelDriver model(ddh_entry_kgat, simplified({{"model.message_dropout", "0.0"}, {"model.leaky_slope", "0.2"}}));
  fill(model, 2);
  train(model, kSamples);
  const std::vector<std::vector<float>> gradient = gradients(model);
  for (size_t p = 0; p < gradient.size(); ++p) {
    CAPTURE(model.name(p));
    for (const Slope& slope : slopes_of(model, p, gradient[p], 1e-3, [&] { return train(model, kSamples); }))
      CHECK(slope.measured == Approx(slope.expected).margin(0.05 * slope.typical));
  }
}

TEST_CASE("recomputation, a second micro-batch and low precision keep the simplified KGAT's gradients") {
  ModelDriver model(ddh_entry_kgat, simplified({{"model.message_dropout", "0.3"}}));
  fill(model, 2);
  const double loss = train(model, kSamples);
  const auto expected = gradients(model);
  model.recompute = true;
  CHECK(train(model, kSamples) == loss);
  CHECK(gradients(model) == expected);
  ModelDriver steady(ddh_entry_kgat, simplified());
  fill(steady, 2);
  require_second_micro_batch_adds(steady);
  ModelDriver low(ddh_entry_kgat, simplified({{"precision.compute", "bf16"}, {"model.message_dropout", "0.3"}}));
  fill(low, 2);
  CHECK(train(low, kSamples) == Approx(loss).epsilon(0.02));
}

TEST_CASE(
    "the simplified KGAT estimates what it keeps and the products that it runs, and has an item of each user an "
    "epoch") {
  const std::string way = GENERATE("aten", "torch");
  CAPTURE(way);
  ModelDriver model(ddh_entry_kgat, computed_by(way, simplified({{"model.embed_dim", "64"},
                                                                 {"model.layers", "[64, 32]"},
                                                                 {"model.cf_sampling", "each_user"}})));
  fill(model);
  CHECK(model.desc().programs[0]->n_samples == kgat_of(model).data().train.size());
  const auto E = static_cast<double>(kgat_of(model).simplified().n_edges());
  const ddh_estimate estimate = model.estimate(0, 256);
  const auto estimated = static_cast<double>(estimate.activation_bytes);
  const double forward = estimate.forward_flops, backward = estimate.backward_flops;
  auto batch = model.create_batch(std::vector<int64_t>(256, 3));
  const CountedFlops products;
  model.forward(batch.batch);
  const double forward_products = CountedFlops::total();
  CHECK(static_cast<double>(model.host().bytes(DDH_TAG_ACT)) == Approx(estimated).epsilon(0.03));
  CountedFlops::total() = 0;
  model.backward(batch.batch, 1);
  // A score and a sum of each edge, then scores and squares of users and items.
  const double edges = E * (64 + 32), pairs = 256.0 * (64 + 64 + 32);
  if (way == "torch") {  // else threads of the model's own run products
    CHECK(forward_products > 0);
    CHECK(forward == Approx(forward_products + 4 * edges + 10 * pairs).epsilon(0.02));
    CHECK(backward == Approx(CountedFlops::total() + 8 * edges + 15 * pairs).epsilon(0.02));
  }
  model.discard();
  model.destroy_batch(batch);
}
