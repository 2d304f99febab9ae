// SPDX-License-Identifier: Apache-2.0
#include "operators.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/leaky_relu_backward.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/segment_reduce.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>

#include <limits>

#include "layers.hpp"
#include "simplified.hpp"

namespace kgat {
namespace {

constexpr double kLeastNorm = 1e-12;

template <class T>
at::Tensor view_of(const std::vector<T>& numbers, at::ScalarType type) {
  return at::from_blob(const_cast<T*>(numbers.data()), {static_cast<int64_t>(numbers.size())}, type);
}
at::Tensor view_of(const std::vector<int32_t>& numbers) { return view_of(numbers, at::kInt); }
at::Tensor view_of(const std::vector<int64_t>& numbers) { return view_of(numbers, at::kLong); }

// A column, to multiply rows with.
at::Tensor column(const at::Tensor& x) { return x.unsqueeze(1); }

// log(1 + exp(x))
at::Tensor softplus(const at::Tensor& x) { return x.clamp_min(0).add_(at::log1p(x.abs().neg_().exp_())); }

// The sum of the squares of each row, in fp64.
at::Tensor squares(const at::Tensor& x) { return x.square().sum(1).to(at::kDouble); }

at::Tensor reduced(const at::Tensor& x, const char* how, const at::Tensor& begin) {
  return at::segment_reduce(x, how, {}, {}, begin, /*axis=*/0, /*unsafe=*/true);  // safe ones would wait for the device
}

// Parallel edges as one entry: the first has the sum of the scores, and the others no weight.
at::Tensor joined(const BatchOnDevice& indices, const at::Tensor& scores) {
  const at::Tensor sums = segment_sums(column(scores), indices.run_begin).squeeze(1);
  return sums.index_select(0, indices.run).masked_fill_(indices.is_later, -std::numeric_limits<float>::infinity());
}

// For each node the sum over its places in a list, of rows of x that follow that list. (nodes, width)
at::Tensor sums_of_places(const RowsOnDevice& rows, const at::Tensor& x) {
  return segment_sums(x.index_select(0, rows.places), rows.begin);
}

// Adds row i of `sums` to row nodes[i] of x.
void add_to_nodes(const RowsOnDevice& rows, const at::Tensor& sums, at::Tensor& x) {
  x.index_add_(0, rows.nodes.to(at::kLong), sums);  // a node occurs once, so the order does not matter
}

// The tensors that a batch uploads, as views of its memory; some are undefined.
std::vector<at::Tensor> tensors_of(const KgatBatch& batch) {
  std::vector<at::Tensor> out(13);
  out[0] = view_of(batch.rows);
  if (batch.places) {
    out[1] = view_of(batch.places->nodes);
    out[2] = view_of(batch.places->begin);
    out[3] = view_of(batch.places->places);
  }
  if (!batch.indices) return out;
  const BatchIndices& i = *batch.indices;
  size_t at = 4;
  for (const std::vector<int64_t>* numbers : {&i.order, &i.inverse, &i.relation, &i.relation_begin, &i.edge_place,
                                              &i.node_begin, &i.node_of_edge, &i.run_begin, &i.run})
    out[at++] = view_of(*numbers);
  out.push_back(view_of(i.is_later, at::kBool));
  return out;
}

BatchOnDevice batch_on_device(const std::vector<at::Tensor>& copies) {
  BatchOnDevice out;
  at::Tensor* const to[] = {&out.rows,       &out.places.nodes, &out.places.begin, &out.places.places,
                            &out.order,      &out.inverse,      &out.relation,     &out.relation_begin,
                            &out.edge_place, &out.node_begin,   &out.node_of_edge, &out.run_begin,
                            &out.run,        &out.is_later};
  for (size_t i = 0; i < copies.size(); ++i) *to[i] = copies[i];
  return out;
}

// Scores and softmax of the batch's edges, into the weights of the edges.
void renew_weights(const UnitContext& u, const at::Tensor& y) {
  const auto n = static_cast<int64_t>(u.batch.edges.size());
  if (n == 0) return;
  const BatchOnDevice& i = u.indices;
  const at::Tensor r = relation_vectors(u).index_select(0, i.relation);
  const at::Tensor from = y.index_select(0, i.order.narrow(0, 0, n)).add_(r).tanh_();
  at::Tensor scores = y.index_select(0, i.order.narrow(0, n, n)).mul_(from).sum(1).index_select(0, i.edge_place);
  if (u.config.joins_parallel_edges) scores = joined(i, scores);
  const auto of_node = [&](const char* how) {
    return reduced(column(scores), how, i.node_begin).squeeze(1).index_select(0, i.node_of_edge);
  };
  scores = scores.sub(of_node("max")).exp_();
  u.weights.narrow(0, u.graph.row_begin[static_cast<size_t>(u.batch.first_node)], n).copy_(scores.div(of_node("sum")));
}

at::Tensor final_rows_of(const at::Tensor& nodes, const LayerOutputs& outputs) {
  std::vector<at::Tensor> parts;
  for (size_t l = 0; l < outputs.e.size(); ++l) {
    parts.push_back(outputs.e[l].index_select(0, nodes));
    if (l > 0 && !outputs.norms.empty())
      parts.back().mul_(outputs.norms[l - 1].index_select(0, nodes).reciprocal_().unsqueeze(1));
  }
  return at::cat(parts, 1);
}

}  // namespace

GraphOnDevice::GraphOnDevice(const Graph& graph, at::Device device)
    : row_begin(view_of(graph.row_begin).to(device)),
      tail(view_of(graph.tail).to(device)),
      column_begin(view_of(graph.column_begin).to(device)),
      column_edge(view_of(graph.column_edge).to(device)),
      column_head(view_of(graph.column_head).to(device)) {}

SimplifiedOnDevice::SimplifiedOnDevice(const SimplifiedGraph& graph, at::Device device)
    : pair_node(view_of(graph.pair_node).to(device)),
      pairs{view_of(graph.pair_places.nodes).to(device), view_of(graph.pair_places.begin).to(device),
            view_of(graph.pair_places.places).to(device)},
      begin(view_of(graph.begin).to(device)),
      head(view_of(graph.head).to(device)),
      row(view_of(graph.row).to(device)),
      row_begin(view_of(graph.row_begin).to(device)),
      row_edge(view_of(graph.row_edge).to(device)) {}

at::Tensor segment_sums(const at::Tensor& x, const at::Tensor& begin) { return reduced(x, "sum", begin); }

void OperatorOps::prepare() {
  if (config_.variant == Variant::kKgat) edges_ = GraphOnDevice(graph_, device_);
  if (simplified_graph_ != nullptr) simplified_ = SimplifiedOnDevice(*simplified_graph_, device_);
}

void OperatorOps::complete(KgatBatch& batch) const {
  if (batch.is_projected()) batch.indices = indices_of(batch, graph_);
}

BatchOnDevice OperatorOps::upload(const KgatBatch& batch, ddh::Transfers& transfers, ddh_stream* stream) const {
  return batch_on_device(transfers.upload(tensors_of(batch), stream));
}

at::Tensor OperatorOps::sums_of_neighbours(const UnitContext& u, const at::Tensor& x) const {
  return segment_sums(x.index_select(0, edges_.tail).mul_(column(u.weights)), edges_.row_begin);
}

void OperatorOps::add_to_neighbours(const UnitContext& u, const at::Tensor& ds, at::Tensor& out) const {
  const at::Tensor weights = u.weights.index_select(0, edges_.column_edge);
  out.add_(segment_sums(ds.index_select(0, edges_.column_head).mul_(column(weights)), edges_.column_begin));
}

std::pair<at::Tensor, at::Tensor> OperatorOps::sum_and_product(const at::Tensor& e, const at::Tensor& s,
                                                               bool has_product) const {
  return {e.add(s), has_product ? e.mul(s) : at::Tensor()};
}

std::pair<at::Tensor, at::Tensor> OperatorOps::sum_and_product_backward(const at::Tensor& e, const at::Tensor& s,
                                                                        const at::Tensor& d_sum,
                                                                        const at::Tensor& d_product) const {
  return {d_sum.add(d_product.mul(s)), d_sum.add(d_product.mul(e))};
}

at::Tensor OperatorOps::leaky(const at::Tensor& z, const at::Tensor& z_2, double slope) const {
  at::Tensor y = at::leaky_relu(z, slope);
  return z_2.defined() ? y.add_(at::leaky_relu(z_2, slope)) : y;
}

at::Tensor OperatorOps::leaky_backward(const at::Tensor& dy, const at::Tensor& z, double slope) const {
  return at::leaky_relu_backward(dy, z, slope, /*self_is_result=*/false);
}

at::Tensor OperatorOps::norms_of_rows(const at::Tensor& x) const {
  return x.square().sum(1).sqrt_().clamp_min_(kLeastNorm);
}

at::Tensor OperatorOps::gather_rows(const UnitContext& u, const at::Tensor& x) const {
  return x.index_select(0, u.indices.rows);
}

void OperatorOps::add_rows(const UnitContext& u, const at::Tensor& dy, at::Tensor& out) const {
  add_to_nodes(u.indices.places, sums_of_places(u.indices.places, dy), out);
}

void OperatorOps::add_normalized_rows(const UnitContext& u, const at::Tensor& dy, const at::Tensor& x,
                                      const at::Tensor& norms, at::Tensor& out) const {
  const RowsOnDevice& rows = u.indices.places;
  const at::Tensor sums = sums_of_places(rows, dy);
  const at::Tensor row = x.index_select(0, rows.nodes), inverse = norms.index_select(0, rows.nodes).reciprocal_();
  const at::Tensor along = row.mul(sums).sum(1).mul_(inverse).mul_(inverse);
  add_to_nodes(rows, sums.sub(row.mul(column(along))).mul_(column(inverse)), out);
}

at::Tensor OperatorOps::final_rows(const UnitContext& u, const LayerOutputs& outputs) const {
  return final_rows_of(u.indices.rows, outputs);
}

at::Tensor OperatorOps::first_final_rows(int64_t n, const LayerOutputs& outputs) const {
  return final_rows_of(at::arange(n, at::TensorOptions(at::kLong).device(device_)), outputs);
}

LossSum OperatorOps::cf_loss(const Config& config, const at::Tensor& x, double seed, at::Tensor* dx) const {
  const int64_t B = x.size(0) / 3;
  const at::Tensor user = x.narrow(0, 0, B), right = x.narrow(0, B, B), wrong = x.narrow(0, 2 * B, B);
  const at::Tensor lead = user.mul(wrong).sum(1).to(at::kDouble).sub_(user.mul(right).sum(1));
  if (dx != nullptr) {
    const at::Tensor slope = column(at::sigmoid(lead).mul_(seed).to(at::kFloat));
    const at::Tensor pull = user.mul(slope);
    *dx = x.mul(config.l2_cf * seed);
    dx->narrow(0, 0, B).add_(wrong.sub(right).mul_(slope));
    dx->narrow(0, B, B).sub_(pull);
    dx->narrow(0, 2 * B, B).add_(pull);
  }
  return softplus(lead).sum().add_(squares(x).sum(), 0.5 * config.l2_cf);
}

LossSum OperatorOps::kg_loss(const UnitContext& u, const at::Tensor& y, double seed, KgGradients* gradients) const {
  const int64_t B = u.batch.B;
  const auto part = [&](int64_t i) { return y.index_select(0, u.indices.order.narrow(0, i * B, B)); };
  const at::Tensor relations = relation_vectors(u), r = relations.index_select(0, u.indices.relation);
  const at::Tensor h = part(0), right = part(1), wrong = part(2), from = h.add(r);
  const at::Tensor to_right = from.sub(right), to_wrong = from.sub(wrong);
  const auto energy = [](const at::Tensor& d) { return d.to(at::kDouble).square_().sum(1); };
  const at::Tensor lead = energy(to_right).sub_(energy(to_wrong));
  const double l2 = u.config.l2_kg, decay = l2 * seed;
  if (gradients != nullptr) {
    const at::Tensor slope = column(at::sigmoid(lead).mul_(2 * seed).to(at::kFloat));
    const at::Tensor apart = wrong.sub(right).mul_(slope);  // of h and r
    const at::Tensor d_right = right.mul(decay).sub_(to_right.mul_(slope));
    const at::Tensor d_wrong = wrong.mul(decay).add_(to_wrong.mul_(slope));
    gradients->y = at::cat({apart.add(h, decay), d_right, d_wrong}).index_select(0, u.indices.inverse);
    gradients->relations = segment_sums(apart.add(r, decay), u.indices.relation_begin);
  }
  const at::Tensor all = squares(h).add_(squares(r)).add_(squares(right)).add_(squares(wrong));
  return softplus(lead).add_(all, 0.5 * l2).sum();
}

at::Tensor OperatorOps::gather_tails(const at::Tensor& x) const { return x.index_select(0, simplified_.pair_node); }

void OperatorOps::add_tails(const at::Tensor& dy, at::Tensor& out) const {
  add_to_nodes(simplified_.pairs, sums_of_places(simplified_.pairs, dy), out);
}

// The host has the weights again when the last node has them; it waits for the GPU there.
void OperatorOps::renew_attention(const UnitContext& u, const at::Tensor& y, std::vector<float>& attention) const {
  renew_weights(u, y);
  if (device_.is_cuda() && u.batch.first_node + u.batch.B == graph_.n_nodes())
    at::from_blob(attention.data(), {graph_.n_edges()}, at::kFloat).copy_(u.weights);
}

}  // namespace kgat
