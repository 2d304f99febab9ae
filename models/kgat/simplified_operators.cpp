// SPDX-License-Identifier: Apache-2.0
//
// The edges of a layer of the simplified variant by operators of LibTorch alone.
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/leaky_relu_backward.h>

#include "layers.hpp"
#include "operators.hpp"
#include "simplified.hpp"

namespace kgat {
namespace {

at::Tensor column(const at::Tensor& x) { return x.unsqueeze(1); }

at::Tensor attention_weight(const UnitContext& u) {
  return ops::vector(ops::param(u.view, kAttentionWeight), u.device);
}

// Rows of the nodes, without those of the pairs. (N, out)
at::Tensor nodes_of(const UnitContext& u, const at::Tensor& rows) { return rows.narrow(0, 0, u.graph.n_nodes()); }

}  // namespace

at::Tensor OperatorOps::simplified_edges(const UnitContext& u, SimplifiedSaved& saved) const {
  const at::Tensor q = nodes_of(u, saved.rows).mul(attention_weight(u)),
                   m = saved.rows.index_select(0, simplified_.row);
  saved.scores = q.index_select(0, simplified_.head)
                     .mul_(m)
                     .sum(1)
                     .add_(ops::vector(ops::param(u.view, kAttentionBias), u.device));
  const at::Tensor shares = at::leaky_relu(saved.scores, u.config.slope);
  at::Tensor y = segment_sums(m.mul(column(shares)), simplified_.begin).clamp_min_(0);
  y = ops::dropout(u.dropout(), std::move(y));
  saved.norms = norms_of_rows(y);
  return y.mul_(column(saved.norms.reciprocal().mul_(kLength)));
}

SimplifiedGradients OperatorOps::simplified_edges_backward(const UnitContext& u, const at::Tensor& dy,
                                                           const at::Tensor& y, const SimplifiedSaved& saved) const {
  const double slope = u.config.slope;
  const at::Tensor along = column(y.mul(dy).sum(1).div_(kLength * kLength));
  at::Tensor dz = dy.sub(y.mul(along)).mul_(column(saved.norms.reciprocal().mul_(kLength)));
  dz = at::leaky_relu_backward(ops::dropout(u.dropout(), std::move(dz)), y, 0, /*self_is_result=*/false);
  const at::Tensor weight = attention_weight(u), own = nodes_of(u, saved.rows);
  const at::Tensor m = saved.rows.index_select(0, simplified_.row), d = dz.index_select(0, simplified_.head);
  const at::Tensor d_scores = at::leaky_relu_backward(d.mul(m).sum(1), saved.scores, slope, /*self_is_result=*/false);
  const at::Tensor dq = segment_sums(m.mul(column(d_scores)), simplified_.begin);  // of w * p
  const at::Tensor shares = at::leaky_relu(saved.scores, slope);
  const at::Tensor d_m =
      d.mul(column(shares)).add_(own.mul(weight).index_select(0, simplified_.head).mul_(column(d_scores)));
  SimplifiedGradients out;
  out.rows = segment_sums(d_m.index_select(0, simplified_.row_edge), simplified_.row_begin);
  nodes_of(u, out.rows).add_(dq.mul(weight));
  out.weight = own.mul(dq).sum(0);
  out.bias = d_scores.sum(0, /*keepdim=*/true);
  return out;
}

}  // namespace kgat
