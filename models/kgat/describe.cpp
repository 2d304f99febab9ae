// SPDX-License-Identifier: Apache-2.0
//
// Parameters under the names of the port to PyTorch with its initial values, units and programs.
#include <cmath>

#include "kgat.hpp"
#include "ranking.hpp"

namespace kgat {
namespace {

ddh::ParamInit uniform(double bound) { return {DDH_INIT_UNIFORM, -bound, bound}; }
// Glorot and Bengio 2010
ddh::ParamInit xavier(int64_t fan_in, int64_t fan_out) {
  return uniform(std::sqrt(6.0 / static_cast<double>(fan_in + fan_out)));
}

}  // namespace

int32_t Kgat::program(const std::string& name) {
  const ddh_model_desc& desc = desc_.get();
  for (uint32_t g = 0; g < desc.n_programs; ++g) {
    if (name == desc.programs[g]->name) return static_cast<int32_t>(g);
  }
  return -1;
}

void Kgat::build_description() {
  add_units();
  if (config_.variant == Variant::kKgat)
    desc_.add_buffer("A_in", {graph_.n_edges()}, DDH_F32, attention_.data(), DDH_SYNC_NEVER);
  add_programs();
}

std::vector<int32_t> Kgat::add_layer(size_t l) {
  const auto unit = static_cast<int32_t>(l) + 1;
  const bool has_two = config_.aggregator == Aggregator::kBiInteraction;
  const int64_t out = config_.layers[l];
  const int64_t in = config_.width_in(l) * (config_.aggregator == Aggregator::kGraphSage ? 2 : 1);
  std::vector<int32_t> params;
  for (const char* linear : has_two ? std::vector<const char*>{"linear1", "linear2"} : std::vector{"linear"}) {
    const std::string prefix = ddh::str("aggregator_layers.", l, ".", linear, ".");
    params.push_back(desc_.add_param(unit, prefix + "weight", {out, in}, xavier(in, out)));
    params.push_back(desc_.add_param(unit, prefix + "bias", {out}, uniform(1 / std::sqrt(static_cast<double>(in))),
                                     DDH_PARAM_NO_DECAY));
  }
  return params;
}

// torch's initial values of bias-free linear layers; W_r are stacked.
std::vector<int32_t> Kgat::add_simplified_layer(size_t l) {
  const auto unit = static_cast<int32_t>(l) + 1;
  const int64_t in = config_.width_in(l), out = config_.layers[l];
  const std::string prefix = ddh::str("convs.", l, ".");
  const auto of_fan = [](int64_t fan) { return uniform(1 / std::sqrt(static_cast<double>(fan))); };
  std::vector<int32_t> params = {
      desc_.add_param(unit, prefix + "W.weight", {out, in}, of_fan(in)),
      desc_.add_param(unit, prefix + "attention.weight", {1, out}, of_fan(out)),
      desc_.add_param(unit, prefix + "attention.bias", {1}, of_fan(out), DDH_PARAM_NO_DECAY)};
  if (simplified_->n_relations > 0)
    params.push_back(desc_.add_param(unit, prefix + "W_r", {simplified_->n_relations, out, in}, of_fan(in)));
  return params;
}

void Kgat::add_units() {
  const int64_t N = graph_.n_nodes(), d = config_.embed_dim, k = config_.relation_dim, R = graph_.n_relations;
  desc_.add_unit("embedding", {desc_.add_param(kEmbeddingUnit, "entity_user_embed.weight", {N, d}, xavier(d, N),
                                               DDH_PARAM_SPARSE_GRAD, {}, {.grad_block = ddh::grad_block_of({N, d})})});
  for (size_t l = 0; l < config_.n_layers(); ++l)
    desc_.add_unit(ddh::str("aggregator.", l), simplified_ ? add_simplified_layer(l) : add_layer(l));
  desc_.add_unit("score", {});
  if (config_.variant != Variant::kKgat) return;
  // torch counts the fans of three dimensions so.
  desc_.add_unit("transr", {desc_.add_param(transr_unit(), "relation_embed.weight", {R, k}, xavier(k, R)),
                            desc_.add_param(transr_unit(), "trans_M", {R, d, k}, xavier(d * k, R * k), 0, {},
                                            {.grad_block = ddh::grad_block_of({R, d, k})})});
}

void Kgat::add_programs() {
  std::vector<int32_t> through_graph;
  for (int32_t unit = kEmbeddingUnit; unit <= score_unit(); ++unit) through_graph.push_back(unit);
  const std::vector<int32_t> through_relations = {kEmbeddingUnit, transr_unit()};
  const bool has_graph = config_.variant == Variant::kKgat, evaluates = !test_users_.empty();
  // What a program trains: the table, and its own units' parameters.
  const auto mask = [&](const std::vector<int32_t>& units) {
    const ddh_model_desc& desc = desc_.get();
    std::vector<uint8_t> trains(desc.n_params, 0);
    for (const int32_t unit : units) {
      for (uint32_t i = 0; i < desc.units[unit]->n_params; ++i)
        trains[static_cast<size_t>(desc.units[unit]->params[i])] = 1;
    }
    return trains;
  };
  desc_.add_program({.kind = DDH_PROGRAM_TRAIN,
                     .name = "cf",
                     .units = through_graph,
                     .metrics = {"loss"},
                     .n_samples = sampler_.n_cf_samples(),
                     .sample_unit = "pairs",
                     .trainable = mask(through_graph),
                     .eval_program = evaluates ? "eval" : ""});
  if (has_graph) {
    desc_.add_program({.kind = DDH_PROGRAM_TRAIN,
                       .name = "kg",
                       .units = through_relations,
                       .metrics = {"loss"},
                       .n_samples = sampler_.n_kg_samples(),
                       .sample_unit = "triples",
                       .trainable = mask(through_relations),
                       .optimizer = 1,
                       .eval_program = evaluates ? "eval" : ""});
    desc_.add_program({.kind = DDH_PROGRAM_UPDATE,
                       .name = "attention",
                       .units = through_relations,
                       .metrics = {},
                       .n_samples = static_cast<uint64_t>(graph_.n_nodes()),
                       .sample_unit = "nodes"});
  }
  if (evaluates)
    desc_.add_program({.kind = DDH_PROGRAM_EVAL,
                       .name = "eval",
                       .units = through_graph,
                       .metrics = ranking_names(config_.ks),
                       .n_samples = test_users_.size(),
                       .sample_unit = "users"});
}

}  // namespace kgat
