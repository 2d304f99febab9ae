// SPDX-License-Identifier: Apache-2.0
//
// KGAT against reference tensors of a toy graph: adjacency, attention, both losses with their gradients, representations,
// scores and the metrics of a ranking.
#include <catch2/catch.hpp>
#include <fstream>
#include <optional>

#include "../../models/kgat/ranking.hpp"
#include "../../models/ops/products.hpp"
#include "fixtures/harness/golden_data.hpp"
#include "fixtures/harness/safetensors.hpp"
#include "golden/kgat_fixture.hpp"
#include "golden/ways.hpp"

using namespace ddhost::test;

namespace {

// The reference's data as a folder in the format of KGAT.
void write_data(const TempFolder& folder, const GoldenFile& file) {
  for (const std::string part : {"train", "test"}) {
    std::ofstream out(folder.file(part + ".txt"));
    for (const auto& [user, items] : file.metadata.at(part).items()) {
      out << user;
      for (const int item : items) out << ' ' << item;
      out << '\n';
    }
  }
  std::ofstream out(folder.file("kg_final.txt"));
  for (const auto& triple : file.metadata.at("kg"))
    out << triple.at(0) << ' ' << triple.at(1) << ' ' << triple.at(2) << '\n';
}

// A model on that data with the reference's weights.
struct Toy {
  explicit Toy(const ModelDriver::Options& more = {}) {
    const auto path = find_data("golden/kgat_toy.safetensors");
    if (!path) return;
    file = read_safetensors(*path);
    write_data(folder, file);
    ModelDriver::Options options = {{"data.path", folder.path().string()},
                                    {"model.embed_dim", "8"},
                                    {"model.relation_dim", "8"},
                                    {"model.layers", "[8, 6, 4]"},
                                    {"model.message_dropout", "0.0"},
                                    {"model.matmul", "aten"},
                                    {"model.ks", "[3]"}};
    for (const auto& [key, value] : more) options[key] = value;
    model.emplace(ddh_entry_kgat, options);
    for (size_t i = 0; i < model->desc().n_params; ++i) {
      const GoldenTensor& tensor = file.at("w." + model->name(i));
      REQUIRE(tensor.shape == model->shape(i));
      model->value(i) = tensor.f32();
    }
  }
  kgat::Kgat& kgat() { return kgat_of(*model); }

  // The weights of the edges as a dense matrix (N, N).
  std::vector<float> adjacency() {
    const kgat::Graph& graph = kgat().graph();
    const auto n = static_cast<size_t>(graph.n_nodes());
    std::vector<float> dense(n * n, 0.0F);
    for (size_t e = 0; e < graph.tail.size(); ++e)
      dense[static_cast<size_t>(graph.head[e]) * n + static_cast<size_t>(graph.tail[e])] += kgat().attention()[e];
    return dense;
  }
  // Runs the update program, in batches of `micro_batch` nodes.
  void renew_attention(int64_t micro_batch) {
    const int32_t program = kgat().program("attention");
    const int64_t n = kgat().graph().n_nodes();
    for (int64_t first = 0; first < n; first += micro_batch) {
      std::vector<int64_t> samples;
      for (int64_t i = first; i < std::min(first + micro_batch, n); ++i) samples.push_back(i);
      auto batch = model->create_batch(samples, program);
      model->forward(batch.batch, program);
      model->discard();
      model->destroy_batch(batch);
    }
  }
  std::vector<int32_t> ids(const std::string& name) const {
    const std::vector<int64_t> values = file.at(name).i64();
    return {values.begin(), values.end()};
  }
  ddh_batch* cf_batch() {
    const std::vector<int32_t> users = ids("cf.users"), right = ids("cf.pos"), wrong = ids("cf.neg");
    std::vector<kgat::CfTriple> samples;
    for (size_t i = 0; i < users.size(); ++i) samples.push_back({users[i], right[i], wrong[i]});
    return kgat().complete(kgat::cf_batch(samples));
  }
  ddh_batch* kg_batch() {
    const std::vector<int32_t> h = ids("kg.h"), r = ids("kg.r"), right = ids("kg.pos_t"), wrong = ids("kg.neg_t");
    std::vector<kgat::KgSample> samples;
    for (size_t i = 0; i < h.size(); ++i) samples.push_back({h[i], r[i], right[i], wrong[i]});
    return kgat().complete(kgat::kg_batch(samples));
  }
  // The mean loss of a batch in a program; the gradients are then the model driver's.
  double train(const std::string& name, ddh_batch* batch) {
    const int32_t program = kgat().program(name);
    model->forward(batch, program);
    const auto [sum, count] = model->metric(program);
    model->backward(batch, 1 / count, program);
    model->discard();
    model->table().batch_destroy(model->inst(), batch);
    return sum / count;
  }
  void check_gradients(const std::string& prefix) {
    for (size_t i = 0; i < model->desc().n_params; ++i) {
      const auto at = file.tensors.find(prefix + model->name(i));
      if (at == file.tensors.end()) continue;
      CAPTURE(at->first);
      ++n_checked;
      REQUIRE(largest_difference(model->grad(i), at->second.f32()) < 1e-6);
    }
  }

  TempFolder folder;
  GoldenFile file;
  std::optional<ModelDriver> model;
  int n_checked = 0;
};

double value(const GoldenFile& file, const std::string& name) {
  return static_cast<double>(file.at(name).f32().front());
}

}  // namespace

TEST_CASE("the graph of KGAT has the reference's edges and initial adjacency") {
  Toy toy;
  if (!toy.model) return;
  const kgat::Graph& graph = toy.kgat().graph();
  std::vector<std::vector<int64_t>> ours, theirs;
  for (size_t e = 0; e < graph.tail.size(); ++e) ours.push_back({graph.head[e], graph.relation[e], graph.tail[e]});
  const std::vector<int64_t> edges = toy.file.at("edges").i64();
  for (size_t e = 0; e < edges.size(); e += 3) theirs.push_back({edges[e], edges[e + 1], edges[e + 2]});
  std::sort(ours.begin(), ours.end()), std::sort(theirs.begin(), theirs.end());
  CHECK(ours == theirs);
  CHECK(largest_difference(toy.adjacency(), toy.file.at("A_init").f32()) < 1e-7);
}

TEST_CASE("the attention of KGAT is the reference's, with parallel edges apart or joined, in batches of any size") {
  const auto [option, tensor] = GENERATE(
      table<std::string, std::string>({{"separate", "A_softmax_per_triple"}, {"joined", "A_softmax_coalesced"}}));
  const std::string way = GENERATE("aten", "torch");
  Toy toy(computed_by(way, {{"model.parallel_edges", option}}));
  if (!toy.model) return;
  for (const int64_t micro_batch : {16, 5, 1}) {
    CAPTURE(option, micro_batch, way);
    std::fill(toy.kgat().attention().begin(), toy.kgat().attention().end(), 7.0F);
    toy.renew_attention(micro_batch);
    CHECK(largest_difference(toy.adjacency(), toy.file.at(tensor).f32()) < 1e-6);
  }
}

TEST_CASE("the score of each edge is the reference's") {
  Toy toy;
  if (!toy.model) return;
  const kgat::Graph& graph = toy.kgat().graph();
  const std::vector<int64_t> edges = toy.file.at("edges").i64();
  const std::vector<float> expected = toy.file.at("edge_score").f32();
  // The softmax keeps differences of scores of one head: their logarithms differ as the scores do.
  toy.renew_attention(16);
  const auto score = [&](int64_t head, int64_t relation, int64_t tail) {
    for (size_t i = 0; i < edges.size(); i += 3)
      if (edges[i] == head && edges[i + 1] == relation && edges[i + 2] == tail)
        return static_cast<double>(expected[i / 3]);
    FAIL("no edge");
    return 0.0;
  };
  for (size_t e = 1; e < graph.tail.size(); ++e) {
    if (graph.head[e] != graph.head[e - 1]) continue;
    const double ours = std::log(static_cast<double>(toy.kgat().attention()[e] / toy.kgat().attention()[e - 1]));
    CHECK(ours == Approx(score(graph.head[e], graph.relation[e], graph.tail[e]) -
                         score(graph.head[e - 1], graph.relation[e - 1], graph.tail[e - 1]))
                      .margin(1e-5));
  }
}

TEST_CASE("KGAT has the reference's loss, gradients, representations and scores of pairs") {
  const std::string way = GENERATE(from_range(ways()));
  const bool move_params = GENERATE(false, true), recompute = GENERATE(false, true);
  CAPTURE(way, move_params, recompute);
  Toy toy(computed_by(way, {}));
  if (!toy.model) return;
  toy.model->move_params = move_params;
  toy.model->recompute = recompute;
  CHECK(toy.train("cf", toy.cf_batch()) == Approx(value(toy.file, "cf.loss_A_init")).epsilon(1e-6));
  toy.renew_attention(16);
  CHECK(toy.train("cf", toy.cf_batch()) == Approx(value(toy.file, "cf.loss")).epsilon(1e-6));
  toy.check_gradients("cf.g.");
  CHECK(toy.n_checked == 13);

  ddh_batch* batch = toy.cf_batch();
  toy.model->forward(batch, toy.kgat().program("cf"));
  const at::Tensor rows = toy.kgat().representations(0);
  CHECK(largest_difference(values_of(rows), toy.file.at("cf.embeddings").f32()) < 1e-6);
  const int64_t n_entities = toy.kgat().data().n_entities, n_users = toy.kgat().data().n_users();
  const at::Tensor scores = rows.narrow(0, n_entities, n_users).matmul(rows.narrow(0, 0, 6).t()).contiguous();
  CHECK(largest_difference(values_of(scores), toy.file.at("scores").f32()) < 1e-5);
  toy.model->discard();
  toy.model->table().batch_destroy(toy.model->inst(), batch);
  CHECK(toy.model->host().bytes(DDH_TAG_DATA) == 0);
}

TEST_CASE("KGAT has the reference's loss and gradients of triples") {
  const std::string way = GENERATE(from_range(ways()));
  const bool move_params = GENERATE(false, true), recompute = GENERATE(false, true);
  CAPTURE(way, move_params, recompute);
  Toy toy(computed_by(way, {}));
  if (!toy.model) return;
  toy.model->move_params = move_params;
  toy.model->recompute = recompute;
  CHECK(toy.train("kg", toy.kg_batch()) == Approx(value(toy.file, "kg.loss")).epsilon(1e-6));
  toy.check_gradients("kg.g.");
  CHECK(toy.n_checked == 3);
  CHECK(toy.model->host().bytes(DDH_TAG_DATA) == 0);
}

TEST_CASE("an evaluation of KGAT has the reference's metrics, whatever the batches") {
  Toy toy(computed_by(GENERATE("aten", "torch"), {}));
  if (!toy.model) return;
  toy.renew_attention(16);
  const int32_t eval = toy.kgat().program("eval");
  const ddh_program_desc& program = *toy.model->desc().programs[eval];
  REQUIRE(program.n_samples == 4);  // one of five users has no test items
  const std::map<std::string, std::string> keys = {{"recall@3", "recall"},
                                                   {"precision@3", "precision"},
                                                   {"ndcg@3", "ndcg_port"},
                                                   {"ndcg_topk@3", "ndcg_official_topk_ideal"},
                                                   {"ndcg_candidates@3", "ndcg_standard"}};
  for (const auto& batches : {std::vector<std::vector<int64_t>>{{0, 1, 2, 3}}, {{0}, {1, 3}, {2}}}) {
    std::map<std::string, double> sums;
    double count = 0;
    for (const std::vector<int64_t>& samples : batches) {
      auto batch = toy.model->create_batch(samples, eval);
      toy.model->forward(batch.batch, eval);
      for (uint32_t m = 0; m < program.n_metrics; ++m) sums[program.metrics[m]] += toy.model->metric(eval, 0, m).first;
      count += toy.model->metric(eval).second;
      toy.model->discard();
      toy.model->destroy_batch(batch);
    }
    REQUIRE(count == 4);
    for (const auto& [ours, theirs] : keys) {
      CAPTURE(ours);
      CHECK(sums.at(ours) / count == Approx(toy.file.metadata.at(theirs).get<double>()).epsilon(1e-12));
    }
  }
}

TEST_CASE("the ideal ranking of ndcg has the test items that were trained on, as the port's; ndcg_candidates has not") {
  const std::vector<float> scores = {0.6F, 0.5F, 2.0F, 0.4F, 0.1F, 0.2F};
  const std::vector<int32_t> train = {2, 3}, test = {1, 3, 4};
  const std::vector<int64_t> ks = {1, 2, 3, 4};
  std::vector<double> values(ks.size() * kgat::kMetricsOfK);
  kgat::rank(scores.data(), 6, train, test, ks, values.data());
  // The port ranks the items of the training last, with score -inf, and sorts the hits of all items for its ideal.
  const std::vector<int> hits = {0, 1, 0, 1, 0, 1}, ideal = {1, 1, 1, 0, 0, 0}, of_candidates = {1, 1, 0, 0, 0, 0};
  const auto dcg = [](const std::vector<int>& gains, int64_t k) {
    double sum = 0;
    for (int64_t r = 0; r < k; ++r) sum += gains[static_cast<size_t>(r)] / std::log2(static_cast<double>(r) + 2);
    return sum;
  };
  const std::vector<std::string> names = kgat::ranking_names(ks);
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t k = ks[i / kgat::kMetricsOfK];
    CAPTURE(names[i]);
    if (names[i] == ddh::str("ndcg@", k)) CHECK(values[i] == Approx(dcg(hits, k) / dcg(ideal, k)).epsilon(1e-14));
    if (names[i] == ddh::str("ndcg_candidates@", k))
      CHECK(values[i] == Approx(dcg(hits, k) / dcg(of_candidates, k)).epsilon(1e-14));
  }
  CHECK(std::find(names.begin(), names.end(), "ndcg_candidates@4") != names.end());
  CHECK(std::find(names.begin(), names.end(), "ndcg_port@4") == names.end());
}

TEST_CASE("a ranking of fewer items than k, of equal scores and of NaN") {
  const std::vector<float> scores = {0.5F, 0.5F, 2.0F, 0.5F, 0.1F};
  std::vector<double> values(2 * kgat::kMetricsOfK);
  // Candidates 0, 1, 3, 4 in this order: hits at ranks 1 and 3.
  kgat::rank(scores.data(), 5, {2}, {1, 2, 4}, {2, 10}, values.data());
  const double ideal_2 = 1 + 1 / std::log2(3), gains = 1 / std::log2(3) + 1 / std::log2(5);
  const std::vector<double> expected = {
      1 / 3., .5, 1, 1 / std::log2(3) / ideal_2, 1 / std::log2(3), 1 / std::log2(3) / ideal_2,
      2 / 3., .2, 1, gains / (ideal_2 + .5),     gains / ideal_2,  gains / ideal_2};
  for (size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i);
    CHECK(values[i] == Approx(expected[i]).epsilon(1e-12));
  }
  const std::vector<float> broken = {0.5F, NAN, 2.0F, 0.5F, 0.1F};
  kgat::rank(broken.data(), 5, {2}, {1}, {2}, values.data());
  CHECK(std::isnan(values[0]));
}
