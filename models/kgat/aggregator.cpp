// SPDX-License-Identifier: Apache-2.0
//
// The table of embeddings, and the aggregators (equations 6 to 8 of the paper), e a node's row and s that of its neighbours:
//   bi-interaction  act(W1 (e + s) + b1) + act(W2 (e * s) + b2)
//   gcn             act(W (e + s) + b)
//   graphsage       act(W [e, s] + b)
#include <ATen/ops/cat.h>

#include <tuple>

#include "layers.hpp"

namespace kgat {
namespace {

// What the linear layers take, in the compute dtype.
struct Inputs {
  at::Tensor x_1, x_2;
};
Inputs inputs_of(const UnitContext& u, const at::Tensor& e, const at::Tensor& s) {
  if (u.config.aggregator == Aggregator::kGraphSage) return {u.narrowed(at::cat({e, s}, 1)), {}};
  const bool has_product = u.config.aggregator == Aggregator::kBiInteraction;
  const auto [sum, product] = u.graph_ops.sum_and_product(e, s, has_product);
  return {u.narrowed(sum), has_product ? u.narrowed(product) : at::Tensor()};
}

// The gradient of a linear layer's input from that of its activation's result.
at::Tensor branch_backward(const UnitContext& u, uint32_t param, const at::Tensor& dy, const at::Tensor& z,
                           const at::Tensor& x) {
  const at::Tensor dz = u.graph_ops.leaky_backward(dy, z, u.config.slope);
  return ops::linear_backward(u.products, ops::affine(u.view, param), u.narrowed(dz), x, at::kFloat);
}

// (N, d) in the dtype of the view
at::Tensor embedding_table(const UnitContext& u) {
  return ops::table(ops::param(u.view, 0), u.graph.n_nodes(), u.config.embed_dim, u.device);
}

}  // namespace

at::Tensor all_embeddings(const UnitContext& u) { return embedding_table(u).to(at::kFloat, false, /*copy=*/true); }

at::Tensor embeddings_of_rows(const UnitContext& u) { return u.graph_ops.gather_rows(u, embedding_table(u)); }

void give_embedding_gradient(const UnitContext& u, const at::Tensor& gradient) {
  ops::give_or_keep(u.later, ops::param(u.view, 0), gradient);
}

at::Tensor aggregate(const UnitContext& u, int64_t out, const at::Tensor& e, AggregatorSaved& saved) {
  saved.s = u.graph_ops.sums_of_neighbours(u, e);
  const Inputs x = inputs_of(u, e, saved.s);
  saved.z_1 = ops::linear(u.products, ops::affine(u.view, 0), x.x_1, out, at::kFloat);
  if (x.x_2.defined()) saved.z_2 = ops::linear(u.products, ops::affine(u.view, 2), x.x_2, out, at::kFloat);
  return ops::dropout(u.dropout(), u.graph_ops.leaky(saved.z_1, saved.z_2, u.config.slope));
}

at::Tensor aggregate_backward(const UnitContext& u, at::Tensor dy, const at::Tensor& e, const AggregatorSaved& saved) {
  dy = ops::dropout(u.dropout(), std::move(dy));
  const Inputs x = inputs_of(u, e, saved.s);
  const at::Tensor d_1 = branch_backward(u, 0, dy, saved.z_1, x.x_1);
  at::Tensor de, ds;
  if (x.x_2.defined()) {
    const at::Tensor d_2 = branch_backward(u, 2, dy, saved.z_2, x.x_2);
    std::tie(de, ds) = u.graph_ops.sum_and_product_backward(e, saved.s, d_1, d_2);
  } else if (u.config.aggregator == Aggregator::kGraphSage) {
    de = d_1.narrow(1, 0, e.size(1)).contiguous();
    ds = d_1.narrow(1, e.size(1), e.size(1)).contiguous();
  } else {
    de = d_1.clone();
    ds = d_1;
  }
  u.graph_ops.add_to_neighbours(u, ds, de);
  return de;
}

}  // namespace kgat
