// SPDX-License-Identifier: Apache-2.0
//
// The table of embeddings, and the aggregators (equations 6 to 8 of the paper), e a node's row and s that of its neighbours:
//   bi-interaction  act(W1 (e + s) + b1) + act(W2 (e * s) + b2)
//   gcn             act(W (e + s) + b)
//   graphsage       act(W [e, s] + b)
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/leaky_relu_backward.h>

#include <cstring>

#include "layers.hpp"

namespace kgat {
namespace {

float* data(at::Tensor& t) { return t.mutable_data_ptr<float>(); }
const float* data(const at::Tensor& t) { return t.const_data_ptr<float>(); }

// What the linear layers take, in the compute dtype.
struct Inputs {
  at::Tensor x_1, x_2;
};
Inputs inputs_of(const UnitContext& u, const at::Tensor& e, const at::Tensor& s) {
  if (u.config.aggregator == Aggregator::kGraphSage) return {u.narrowed(at::cat({e, s}, 1)), {}};
  const bool has_product = u.config.aggregator == Aggregator::kBiInteraction;
  if (u.by_operators) return {u.narrowed(e.add(s)), has_product ? u.narrowed(e.mul(s)) : at::Tensor()};
  at::Tensor sum = at::empty_like(e), product;
  if (has_product) product = at::empty_like(e);
  sum_and_product(data(std::as_const(e)), data(std::as_const(s)), e.numel(), data(sum),
                  has_product ? data(product) : nullptr);
  return {u.narrowed(sum), has_product ? u.narrowed(product) : at::Tensor()};
}

// The gradient of a linear layer's input from that of its activation's result.
at::Tensor branch_backward(const UnitContext& u, uint32_t param, const at::Tensor& dy, const at::Tensor& z,
                           const at::Tensor& x) {
  at::Tensor dz;
  if (u.by_operators) {
    dz = at::leaky_relu_backward(dy, z, u.config.slope, /*self_is_result=*/false);
  } else {
    dz = at::empty_like(dy);
    leaky_backward(data(std::as_const(z)), static_cast<float>(u.config.slope), data(std::as_const(dy)), dy.numel(),
                   data(dz));
  }
  return ops::linear_backward(u.products, ops::affine(u.view, param), u.narrowed(dz), x, at::kFloat);
}

// s (N, in): the weighted sums of neighbours.
at::Tensor weighted_sums(const UnitContext& u, const at::Tensor& e) {
  if (u.by_operators) return sums_of_neighbours(u, e);
  at::Tensor s = at::empty_like(e);
  multiply(u.graph, data(u.weights), data(e), e.size(1), data(s));
  return s;
}

// act(z_1) + act(z_2)
at::Tensor activated(const UnitContext& u, const AggregatorSaved& saved) {
  const bool has_two = saved.z_2.defined();
  if (u.by_operators) {
    at::Tensor y = at::leaky_relu(saved.z_1, u.config.slope);
    return has_two ? y.add_(at::leaky_relu(saved.z_2, u.config.slope)) : y;
  }
  at::Tensor y = at::empty_like(saved.z_1);
  leaky(data(saved.z_1), has_two ? data(saved.z_2) : nullptr, static_cast<float>(u.config.slope), y.numel(), data(y));
  return y;
}

// (N, d) in the dtype of the view
at::Tensor embedding_table(const UnitContext& u) {
  return ops::table(ops::param(u.view, 0), u.graph.n_nodes(), u.config.embed_dim, u.device);
}

}  // namespace

at::Tensor all_embeddings(const UnitContext& u) { return embedding_table(u).to(at::kFloat, false, /*copy=*/true); }

at::Tensor embeddings_of_rows(const UnitContext& u) {
  if (u.by_operators) return embedding_table(u).index_select(0, u.indices.rows);
  const int64_t d = u.config.embed_dim, rows = static_cast<int64_t>(u.batch.rows.size());
  at::Tensor out = at::empty({rows, d}, u.config.compute);
  const auto row_bytes = static_cast<size_t>(d) * out.element_size();
  const auto* from = static_cast<const char*>(ops::param(u.view, 0).data);
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  for (const int32_t node : u.batch.rows) {
    std::memcpy(to, from + static_cast<size_t>(node) * row_bytes, row_bytes);
    to += row_bytes;
  }
  return out;
}

void give_embedding_gradient(const UnitContext& u, const at::Tensor& gradient) {
  ops::give(ops::param(u.view, 0), gradient);
}

at::Tensor aggregate(const UnitContext& u, int64_t out, const at::Tensor& e, AggregatorSaved& saved) {
  saved.s = weighted_sums(u, e);
  const Inputs x = inputs_of(u, e, saved.s);
  saved.z_1 = ops::linear(u.products, ops::affine(u.view, 0), x.x_1, out, at::kFloat);
  if (x.x_2.defined()) saved.z_2 = ops::linear(u.products, ops::affine(u.view, 2), x.x_2, out, at::kFloat);
  return ops::dropout(u.dropout(), activated(u, saved));
}

at::Tensor aggregate_backward(const UnitContext& u, at::Tensor dy, const at::Tensor& e, const AggregatorSaved& saved) {
  dy = ops::dropout(u.dropout(), std::move(dy));
  const Inputs x = inputs_of(u, e, saved.s);
  const at::Tensor d_1 = branch_backward(u, 0, dy, saved.z_1, x.x_1);
  at::Tensor de, ds;
  if (x.x_2.defined()) {
    const at::Tensor d_2 = branch_backward(u, 2, dy, saved.z_2, x.x_2);
    if (u.by_operators) {
      de = d_1.add(d_2.mul(saved.s)), ds = d_1.add(d_2.mul(e));
    } else {
      de = at::empty_like(e), ds = at::empty_like(e);
      sum_and_product_backward(data(e), data(saved.s), data(d_1), data(d_2), e.numel(), data(de), data(ds));
    }
  } else if (u.config.aggregator == Aggregator::kGraphSage) {
    de = d_1.narrow(1, 0, e.size(1)).contiguous();
    ds = d_1.narrow(1, e.size(1), e.size(1)).contiguous();
  } else {
    de = d_1.clone();
    ds = d_1;
  }
  if (u.by_operators) {
    add_to_neighbours(u, ds, de);
  } else {
    add_transposed(u.graph, data(u.weights), data(std::as_const(ds)), e.size(1), data(de));
  }
  return de;
}

}  // namespace kgat
