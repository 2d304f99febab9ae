// SPDX-License-Identifier: Apache-2.0
#include "config.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <sstream>

#include "../ops/model_products.hpp"
#include "ddh/sdk/files/find_data.hpp"
#include "ddh/sdk/options.hpp"

namespace kgat {
namespace {

constexpr size_t kMostNumbers = 32;  // of an option that is a list

constexpr ddh::Option kOptions[] = {
    {"dataset", "string", R"("lastfm_kg")", "",
     "without data.path: " DDH_DATA_PLACES "; made_up: a small made-up graph"},
    {"variant", "string", R"("kgat")", R"("enum": ["kgat", "simplified", "mf"])",
     "kgat: the knowledge graph attention network; simplified: attention without TransR and without a softmax, one "
     "program; mf: BPR-MF, embeddings of users and items without a graph"},
    {"aggregator", "string", R"("bi-interaction")", R"("enum": ["bi-interaction", "gcn", "graphsage"])",
     "how a layer combines a node with the weighted sum of its neighbours"},
    {"adjacency", "string", R"("random_walk")", R"("enum": ["random_walk", "symmetric"])",
     "weights of the edges before the first update of the attention: the rows of each relation add up to 1, as in the "
     "port to PyTorch; or 1 / sqrt(edges of the relation from the head x to the tail), which is not the port's"},
    {"parallel_edges", "string", R"("separate")", R"("enum": ["separate", "joined"])",
     "several relations between two nodes: separate entries of the softmax, or one entry with the sum of their scores"},
    {"kg_edges", "string", R"("all")", R"("enum": ["items", "all"])",
     "edges of the knowledge graph in variant simplified: all, or those between two items, as in the source"},
    {"embed_dim", "integer", "64", R"("minimum": 1, "maximum": 65536)", "width of the embeddings"},
    {"relation_dim", "integer", "64", R"("minimum": 1, "maximum": 65536)", "width of the space of relations"},
    {"layers", "array", "[64, 32, 16]",
     R"("items": {"type": "integer", "minimum": 1, "maximum": 65536}, "minItems": 1, "maxItems": 16)",
     "widths of the layers' outputs"},
    {"message_dropout", "number", "0.1", R"("minimum": 0, "maximum": 0.95)", "on the output of each layer"},
    {"leaky_slope", "number", "0.01", R"("minimum": 0, "maximum": 1)",
     "of LeakyReLU for negative values: 0.01 in the port to PyTorch, 0.2 in the original"},
    {"l2_cf", "number", "1e-5", ddh::kAtLeast0, "factor of the squares of representations in the loss of cf"},
    {"l2_kg", "number", "1e-5", ddh::kAtLeast0, "factor of the squares of projections in the loss of kg"},
    {"cf_sampling", "string", R"("users")", R"("enum": ["users", "pairs", "each_user"])",
     "users: all users equally often, with one of the user's items at random; pairs: each pair of the training data "
     "once an epoch; each_user: one item of each user an epoch"},
    {"kg_sampling", "string", R"("heads")", R"("enum": ["heads", "triples"])",
     "heads: all nodes equally often, with one of the node's triples at random; triples: each triple once an epoch"},
    {"ks", "array", "[20, 40, 60, 80, 100]",
     R"("items": {"type": "integer", "minimum": 1, "maximum": 1000000}, "minItems": 1, "maxItems": 8)",
     "lengths of the ranking at which recall, precision, hit and ndcg are reported"},
    {"validation", "number", "0.0", R"("minimum": 0, "maximum": 0.9)",
     "part of each user's training items that is held out and evaluated instead of the test items"},
    {"skip_bad_lines", "boolean", "false", "",
     "leave out lines of the data that can't be used, and say how many, instead of ending the run"},
    ops::kMatmulOption,
    ddh::kOperatorsOption,
};

std::vector<int64_t> integers(const ddh::Host& host, const char* key) {
  std::array<double, kMostNumbers> values{};
  uint32_t n = 0;
  ddh::call(host.config->get_f64s, host.h, key, values.data(), static_cast<uint32_t>(values.size()), &n);
  std::vector<int64_t> out;
  for (uint32_t i = 0; i < n; ++i) out.push_back(static_cast<int64_t>(values.at(i)));
  return out;
}

Variant variant_of(const std::string& name) {
  return name == "mf" ? Variant::kMf : name == "simplified" ? Variant::kSimplified : Variant::kKgat;
}

CfSampling cf_sampling_of(const std::string& name) {
  return name == "pairs" ? CfSampling::kPairs : name == "each_user" ? CfSampling::kEachUser : CfSampling::kUsers;
}

Aggregator aggregator_of(const std::string& name) {
  return name == "gcn" ? Aggregator::kGcn : name == "graphsage" ? Aggregator::kGraphSage : Aggregator::kBiInteraction;
}

std::vector<int64_t> ascending(std::vector<int64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

// Options that not every variant reads, with those that do.
constexpr struct {
  std::string_view option, readers;
} kReaders[] = {
    {"aggregator", "kgat"},
    {"adjacency", "kgat"},
    {"parallel_edges", "kgat"},
    {"relation_dim", "kgat"},
    {"l2_kg", "kgat"},
    {"kg_sampling", "kgat"},
    {"kg_edges", "simplified"},
    {"layers", "kgat simplified"},
    {"message_dropout", "kgat simplified"},
    {"leaky_slope", "kgat simplified"},
};

// Of a number or a list in JSON.
std::vector<double> numbers_in(std::string_view json) {
  std::string spaced(json);
  std::replace_if(
      spaced.begin(), spaced.end(), [](char c) { return c == '[' || c == ',' || c == ']'; }, ' ');
  std::istringstream in(spaced);
  return {std::istream_iterator<double>(in), {}};
}

bool is_default(const ddh::Host& host, const ddh::Option& option) {
  const std::string key = ddh::str("model.", option.name);
  if (option.type == "string") return ddh::str('"', host.text(key.c_str()), '"') == option.default_value;
  const std::vector<double> expected = numbers_in(option.default_value);
  if (option.type != "array") return host.f64(key.c_str()) == expected.front();
  const std::vector<int64_t> values = integers(host, key.c_str());
  return std::equal(values.begin(), values.end(), expected.begin(), expected.end());
}

// Options that a variant does not read must have their defaults.
void refuse_idle_choices(const ddh::Host& host) {
  const std::string variant = host.text("model.variant");
  for (const auto& [name, readers] : kReaders) {
    const auto* const option = std::ranges::find(kOptions, name, &ddh::Option::name);
    if (readers.find(variant) == std::string_view::npos && !is_default(host, *option))
      ddh::fail(DDH_INVALID_ARGUMENT, "model.", name, " has no effect in model.variant=", variant,
                "; leave it out, or give its default ", option->default_value);
  }
}

}  // namespace

const char* const kSchema = ddh::kSchemaOf<kOptions>;

Config::Config(const ddh::Host& host)
    : variant(variant_of(host.text("model.variant"))),
      aggregator(aggregator_of(host.text("model.aggregator"))),
      adjacency(host.text("model.adjacency") == "symmetric" ? Adjacency::kSymmetric : Adjacency::kRandomWalk),
      joins_parallel_edges(host.text("model.parallel_edges") == "joined"),
      embed_dim(host.i64("model.embed_dim")),
      relation_dim(host.i64("model.relation_dim")),
      knows_items_only(host.text("model.kg_edges") == "items"),
      layers(variant == Variant::kMf ? std::vector<int64_t>() : integers(host, "model.layers")),
      message_dropout(host.f64("model.message_dropout")),
      slope(host.f64("model.leaky_slope")),
      l2_cf(host.f64("model.l2_cf")),
      l2_kg(host.f64("model.l2_kg")),
      cf_sampling(cf_sampling_of(host.text("model.cf_sampling"))),
      kg_sampling(host.text("model.kg_sampling") == "triples" ? KgSampling::kTriples : KgSampling::kHeads),
      ks(ascending(integers(host, "model.ks"))),
      seed(static_cast<uint64_t>(host.i64("run.seed"))),
      compute(ops::compute_type(host, "kgat")) {
  refuse_idle_choices(host);
}

}  // namespace kgat
