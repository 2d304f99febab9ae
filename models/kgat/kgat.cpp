// SPDX-License-Identifier: Apache-2.0
#include "kgat.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>

#include <cstring>

#include "kernel_ops.hpp"
#include "ranking.hpp"

namespace kgat {
namespace {

KgatData load(const ddh::Host& host) {
  KgatData data = open_data(host, host.text("model.dataset"));
  if (const double part = host.f64("model.validation"); part > 0) hold_out(data, part);
  return data;
}

std::vector<int32_t> users_with_items(const std::vector<std::vector<int32_t>>& items) {
  std::vector<int32_t> users;
  for (size_t u = 0; u < items.size(); ++u) {
    if (!items[u].empty()) users.push_back(static_cast<int32_t>(u));
  }
  return users;
}

std::optional<SimplifiedGraph> simplified_graph(const Config& config, const Graph& graph, const KgatData& data) {
  if (config.variant != Variant::kSimplified) return std::nullopt;
  return SimplifiedGraph(graph, data, config.knows_items_only);
}

std::unique_ptr<GraphOps> graph_ops(const Config& config, const Graph& graph, const SimplifiedGraph* simplified,
                                    const ddh::TorchDevice& device) {
  if (device.by_operators()) return std::make_unique<OperatorOps>(config, graph, simplified, device.where());
  return std::make_unique<KernelOps>(simplified);
}

}  // namespace

const char* const kNeeds[] = {DDH_CONFIG_IFACE, DDH_ALLOC_IFACE, DDH_COMM_IFACE,
                              DDH_STREAM_IFACE, DDH_COPY_IFACE,  nullptr};

Kgat::Kgat(const ddh_create& create)
    : UnitModel(create, ddh::Host(create.host).text("model.operators")),
      config_(host),
      data_(load(host)),
      graph_(data_),
      simplified_(simplified_graph(config_, graph_, data_)),
      graph_ops_(graph_ops(config_, graph_, simplified_ ? &*simplified_ : nullptr, device())),
      sampler_(config_, data_, graph_),
      test_users_(users_with_items(data_.test)),
      attention_(graph_.initial_weights(config_.adjacency)),
      desc_(ddh::str("kgat of ", data_.n_users(), " users, ", data_.n_items, " items, ", data_.n_entities,
                     " entities, ", graph_.n_edges(), " edges")),
      products_(host, device(), "kgat", config_.compute) {
  if (const double part = host.f64("model.validation"); test_users_.empty())
    host.log(DDH_LOG_WARN, "there is nothing to evaluate: ",
             part > 0 ? ddh::str("model.validation=", part, " holds out no item, because no user has two")
                      : "no user has an item in test.txt");
  build_description();
}

void Kgat::prepare() {
  const int64_t out = config_.layers.empty() ? config_.embed_dim : config_.layers.front();
  products_.settle({graph_.n_nodes(), config_.embed_dim, out});
  in_torch(nullptr, [&] { graph_ops_->prepare(); });
}

// Programs that train or evaluate read them; an update changes them on the device. A load comes before the first call.
const at::Tensor& Kgat::weights() {
  if (config_.variant == Variant::kKgat && !weights_.defined())
    weights_ = at::from_blob(attention_.data(), {graph_.n_edges()}, at::kFloat).to(device().where());
  return weights_;
}

// ---- Batches ---------------------------------------------------------------------------------------------

ddh_batch* Kgat::complete(KgatBatch batch) {
  graph_ops_->complete(batch);
  return give_away(std::make_unique<KgatBatch>(std::move(batch)));
}

ddh_batch* Kgat::batch_create(const ddh_batch_args& args, ddh_batch_info& info) {
  info.items = args.n_samples;
  info.loss_count = args.n_samples;
  const std::string_view name = desc_.get().programs[args.program]->name;
  if (name == "cf") return complete(sampler_.cf(args));
  if (name == "kg") return complete(sampler_.kg(args));
  // The host gives ascending indices without gaps to an update program.
  if (name == "attention")
    return complete(attention_batch(graph_, args.n_samples > 0 ? args.samples[0] : 0, args.n_samples));
  KgatBatch batch;
  batch.B = args.n_samples;
  for (uint32_t b = 0; b < args.n_samples; ++b) {
    batch.users.push_back(test_users_[static_cast<size_t>(args.samples[b])]);
    batch.rows.push_back(static_cast<int32_t>(data_.n_entities) + batch.users.back());
  }
  return complete(std::move(batch));
}

// ---- Forward -------------------------------------------------------------------------------------------------

UnitContext Kgat::unit_context(const ddh_unit_call& c) {
  ops::require_dtype(host, *c.view, ops::dtype_of(config_.compute), "kgat");
  const ddh::DropoutKey key{config_.seed, c.step, c.global_micro_batch, c.position, 0};
  return {config_,
          graph_,
          *products_,
          batch_of(c.batch),
          *c.view,
          weights(),
          key,
          c.phase != DDH_PHASE_EVAL,
          device().where(),
          *graph_ops_,
          contexts_.at(c.micro_batch).indices,
          later()};
}

void Kgat::run_forward(const ddh_unit_call& c) {
  const c10::InferenceMode no_autograd;
  Context& context = contexts_[c.micro_batch];
  const bool again = c.phase == DDH_PHASE_RECOMPUTE;
  if (c.position == 0 && !again) {
    context = {};
    context.saved.resize(config_.n_layers()), context.simplified.resize(config_.n_layers());
    context.sums.assign(desc_.get().programs[c.program]->n_metrics, 0);
    context.count = static_cast<double>(batch_of(c.batch).B);
  }
  if (batch_of(c.batch).B == 0) return;
  if (c.position == 0 && !again) context.indices = graph_ops_->upload(batch_of(c.batch), transfers(), c.stream);
  const UnitContext u = unit_context(c);
  if (c.unit == kEmbeddingUnit) {
    if (again) return;  // its output is kept: it is the input of the next unit
    if (!u.batch.is_projected()) {
      context.e.push_back(all_embeddings(u));
    } else {
      context.x = embeddings_of_rows(u);
    }
  } else if (c.unit < score_unit()) {
    simplified_ ? run_simplified(u, c, context) : run_aggregator(u, c, context);
  } else if (c.unit == score_unit()) {
    if (!again) run_score(u, c, context);
  } else {
    run_transr(u, c, context);
  }
}

void Kgat::run_simplified(const UnitContext& u, const ddh_unit_call& c, Context& context) {
  const size_t l = layer_of(c.unit);
  SimplifiedSaved& saved = context.simplified[l];
  const at::Tensor y = simplified_layer(u, *simplified_, context.e[l], config_.layers[l], saved);
  if (c.phase == DDH_PHASE_RECOMPUTE) return;
  context.e.push_back(y);
  if (c.phase == DDH_PHASE_EVAL || (c.flags & DDH_CALL_RECOMPUTED) != 0) saved = {};
}

void Kgat::run_aggregator(const UnitContext& u, const ddh_unit_call& c, Context& context) {
  const size_t l = layer_of(c.unit);
  AggregatorSaved& saved = context.saved[l];
  const at::Tensor y = aggregate(u, config_.layers[l], context.e[l], saved);
  if (c.phase == DDH_PHASE_RECOMPUTE) return;
  context.e.push_back(y);
  context.norms.push_back(graph_ops_->norms_of_rows(y));
  if (c.phase == DDH_PHASE_EVAL || (c.flags & DDH_CALL_RECOMPUTED) != 0) saved = {};
}

at::Tensor Kgat::representations(int32_t micro_batch) const {
  return graph_ops_->first_final_rows(graph_.n_nodes(), contexts_.at(micro_batch).outputs());
}

void Kgat::give_loss(const LossSum& loss, const ddh_unit_call& c, Context& context) {
  if (const double* const sum = std::get_if<double>(&loss)) {
    context.sums.at(0) = *sum;
  } else {
    transfers().send(c.micro_batch, std::get<at::Tensor>(loss), c.stream);
  }
}

void Kgat::run_score(const UnitContext& u, const ddh_unit_call& c, Context& context) {
  if (u.batch.kind == BatchKind::kEval) return evaluate(u, c, context);
  context.rows = graph_ops_->final_rows(u, context.outputs());
  give_loss(graph_ops_->cf_loss(config_, context.rows, 0, nullptr), c, context);
}

void Kgat::evaluate(const UnitContext& u, const ddh_unit_call& c, Context& context) {
  const at::Tensor users = graph_ops_->final_rows(u, context.outputs());
  // In the compute dtype, as any product.
  const at::Tensor x = u.narrowed(users);
  const at::Tensor w = u.narrowed(graph_ops_->first_final_rows(data_.n_items, context.outputs()));
  const at::Tensor scores = at::empty({u.batch.B, data_.n_items}, x.options().dtype(at::kFloat));
  u.products.forward({u.batch.B, config_.final_width(), data_.n_items}, ops::operand(x), ops::operand(w), nullptr,
                     ops::result(scores));
  if (!device().by_operators()) return add_rankings(scores, u.batch.users, context.sums.data());
  context.users = u.batch.users;
  transfers().send(c.micro_batch, scores, c.stream);
}

void Kgat::add_rankings(const at::Tensor& scores, const std::vector<int32_t>& users, double* sums) const {
  const size_t n_values = config_.ks.size() * kMetricsOfK;
  std::vector<double> values(users.size() * n_values);
  ddh::for_pieces(static_cast<int64_t>(users.size()), [&](int64_t b) {
    const auto user = static_cast<size_t>(users[static_cast<size_t>(b)]);
    rank(scores.const_data_ptr<float>() + b * data_.n_items, data_.n_items, data_.train[user], data_.test[user],
         config_.ks, values.data() + static_cast<size_t>(b) * n_values);
  });
  for (size_t i = 0; i < values.size(); ++i) sums[i % n_values] += values[i];
}

void Kgat::run_transr(const UnitContext& u, const ddh_unit_call& c, Context& context) {
  context.y = project(u, context.x);
  if (c.phase == DDH_PHASE_RECOMPUTE) return;
  if (u.batch.kind == BatchKind::kAttention) return graph_ops_->renew_attention(u, context.y, attention_);
  give_loss(graph_ops_->kg_loss(u, context.y, 0, nullptr), c, context);
  if ((c.flags & DDH_CALL_RECOMPUTED) != 0) context.y = at::Tensor();
}

// ---- Backward ------------------------------------------------------------------------------------------------

// The gradient of e[l]: from the layer above, and from the batch's rows of the final representation.
at::Tensor Kgat::take_gradient_of(const UnitContext& u, Context& context, size_t l) const {
  at::Tensor g = context.g.defined() ? std::move(context.g) : at::zeros_like(context.e[l]);
  context.g = at::Tensor();
  int64_t first = 0;  // of the layer's columns
  for (size_t below = 0; below < l; ++below) first += context.e[below].size(1);
  const at::Tensor dy = context.rows.narrow(1, first, context.e[l].size(1));
  if (l == 0 || simplified_) {
    graph_ops_->add_rows(u, dy, g);
  } else {
    graph_ops_->add_normalized_rows(u, dy, context.e[l], context.norms[l - 1], g);
  }
  return g;
}

void Kgat::backward_of_layer(const UnitContext& u, Context& context, size_t l) const {
  const at::Tensor dy = take_gradient_of(u, context, l + 1);
  if (simplified_) {
    context.g = simplified_backward(u, *simplified_, dy, context.e[l], context.e[l + 1], context.simplified[l]);
    context.simplified[l] = {};
  } else {
    context.g = aggregate_backward(u, dy, context.e[l], context.saved[l]);
    context.saved[l] = {};
    context.norms.resize(l);
  }
  context.e.resize(l + 1);
}

void Kgat::run_backward(const ddh_unit_call& c) {
  const c10::InferenceMode no_autograd;
  if (batch_of(c.batch).B == 0) {
    keep_zeros(*c.view);
    return ops::give_zeros(*c.view, device().where());
  }
  Context& context = contexts_.at(c.micro_batch);
  const UnitContext u = unit_context(c);
  if (c.unit == score_unit()) {
    at::Tensor d_rows;
    graph_ops_->cf_loss(config_, context.rows, c.seed_scale, &d_rows);
    context.rows = d_rows;
  } else if (c.unit == transr_unit()) {
    KgGradients gradients;
    graph_ops_->kg_loss(u, context.y, c.seed_scale, &gradients);
    context.y = at::Tensor();
    ops::give(ops::param(u.view, 0), gradients.relations);
    context.g = project_backward(u, gradients.y, context.x);
    context.x = at::Tensor();
  } else if (c.unit != kEmbeddingUnit) {
    backward_of_layer(u, context, layer_of(c.unit));
  } else if (!u.batch.is_projected()) {
    give_embedding_gradient(u, take_gradient_of(u, context, 0));
    context.e.clear();
    context.rows = at::Tensor();
  } else {
    at::Tensor gradient = at::zeros({graph_.n_nodes(), config_.embed_dim}, context.g.options());
    graph_ops_->add_rows(u, context.g, gradient);
    give_embedding_gradient(u, gradient);
    context.g = at::Tensor();
  }
  if (c.position == 0) context.indices = {};
}

void Kgat::give_metrics(int32_t, int32_t micro_batch, double* sums, double* counts) {
  const Context& context = contexts_.at(micro_batch);
  std::copy(context.sums.begin(), context.sums.end(), sums);
  std::fill_n(counts, context.sums.size(), context.count);
  const at::Tensor sent = transfers().read(micro_batch);
  if (!sent.defined()) return;
  if (context.users.empty()) {
    sums[0] = sent.item<double>();
  } else {
    add_rankings(sent, context.users, sums);
  }
}

}  // namespace kgat
