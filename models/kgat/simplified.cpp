// SPDX-License-Identifier: Apache-2.0
#include "simplified.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "../ops/column_sums.hpp"
#include "ddh/sdk/torch/activations.hpp"

namespace kgat {
namespace {

float* data(at::Tensor& t) { return t.mutable_data_ptr<float>(); }
const float* data(const at::Tensor& t) { return t.const_data_ptr<float>(); }
size_t index(int64_t i) { return static_cast<size_t>(i); }

const char* bytes_from(const void* matrix, int64_t numel, int64_t element_bytes) {
  return static_cast<const char*>(matrix) + numel * element_bytes;
}

// Matrix of a relation (out, in).
const void* matrix_of(const ddh_param_view& matrices, int32_t relation, int64_t numel) {
  return bytes_from(matrices.data, relation * numel, static_cast<int64_t>(ddh_dtype_bytes(matrices.dtype)));
}

at::Tensor project_rows(const UnitContext& u, const SimplifiedGraph& graph, const at::Tensor& x, int64_t out) {
  const int64_t N = graph.n_nodes(), in = x.size(1);
  const at::Tensor rows = at::empty({graph.n_rows(), out}, x.options().dtype(at::kFloat));
  u.products.forward({N, in, out}, ops::operand(x), ops::param(u.view, kShared).data, nullptr, ops::result(rows));
  if (graph.n_pairs() == 0) return rows;
  const at::Tensor tails = u.graph_ops.gather_tails(x);
  for (const RelationGroup& group : graph.groups)
    u.products.forward({group.n_rows, in, out}, ops::operand(tails.narrow(0, group.first_row, group.n_rows)),
                       matrix_of(ops::param(u.view, kOfRelations), group.relation, in * out), nullptr,
                       ops::result(rows.narrow(0, N + group.first_row, group.n_rows)));
  return rows;
}

// Gradients of W and of each W_r from that of the rows; returns that of x.
at::Tensor project_rows_backward(const UnitContext& u, const SimplifiedGraph& graph, const at::Tensor& d_rows,
                                 const at::Tensor& x) {
  const int64_t N = graph.n_nodes(), in = x.size(1), out = d_rows.size(1);
  const at::Tensor dy = u.narrowed(d_rows);
  const ddh_param_view& shared = ops::param(u.view, kShared);
  at::Tensor dx = at::empty({N, in}, d_rows.options());
  u.products.backward_input({N, in, out}, ops::operand(dy), shared.data, ops::result(dx));
  if (shared.grad != nullptr)
    u.products.backward_weight({N, in, out}, ops::operand(dy), ops::operand(x), ops::grad(shared), ops::adds(shared));
  if (graph.n_relations == 0) return dx;
  const ddh_param_view& w = ops::param(u.view, kOfRelations);
  const at::Tensor tails = u.graph_ops.gather_tails(x);
  const at::Tensor d_tails = at::empty({graph.n_pairs(), in}, d_rows.options());
  int64_t done = 0;  // elements of the gradient of W_r
  for (const RelationGroup& group : graph.groups) {
    const ops::LinearShape shape = {group.n_rows, in, out};
    const void* of_dy = ops::operand(dy.narrow(0, N + group.first_row, group.n_rows));
    if (w.grad != nullptr) {
      const int64_t first = group.relation * in * out;
      give_nothing(w, done, first - done, u.device);
      u.products.backward_weight(shape, of_dy, ops::operand(tails.narrow(0, group.first_row, group.n_rows)),
                                 ops::grad(w) + first, ops::adds(w));
      done = first + in * out;
    }
    u.products.backward_input(shape, of_dy, matrix_of(w, group.relation, in * out),
                              ops::result(d_tails.narrow(0, group.first_row, group.n_rows)));
  }
  if (w.grad != nullptr) give_nothing(w, done, graph.n_relations * in * out - done, u.device);
  u.graph_ops.add_tails(d_tails, dx);
  return dx;
}

// Gradient of z from that of y.
at::Tensor shape_backward(const UnitContext& u, const at::Tensor& dy, const at::Tensor& y, const at::Tensor& norms) {
  const int64_t width = y.size(1);
  at::Tensor dh = at::empty_like(y);
  const float *all_rows = data(y), *all_d = data(dy), *lengths = data(norms);
  float* const of_h = data(dh);
  for_rows(y.size(0), [=](int64_t i) {
    const float *row = all_rows + i * width, *d = all_d + i * width, inverse = kLength / lengths[i];
    const float along = dot(row, d, width) / (kLength * kLength);
    float* const to = of_h + i * width;
    for (int64_t c = 0; c < width; ++c) to[c] = (d[c] - along * row[c]) * inverse;
  });
  dh = ops::dropout(u.dropout(), std::move(dh));
  at::Tensor dz = at::empty_like(y);
  leaky_backward(data(y), 0, data(std::as_const(dh)), y.numel(), data(dz));
  return dz;
}

// From dz (N, out) to the projected rows and the attention.
SimplifiedGradients edges_backward(const SimplifiedGraph& graph, const at::Tensor& dz, const at::Tensor& weight,
                                   float slope, const SimplifiedSaved& saved) {
  const int64_t N = graph.n_nodes(), out = dz.size(1);
  const float *rows = data(saved.rows), *w = data(weight), *scores = data(saved.scores), *d = data(dz);
  at::Tensor ds = at::empty({graph.n_edges()}, at::kFloat);  // of the scores
  at::Tensor dq = at::zeros({N, out}, at::kFloat);           // of w * p
  float *const of_scores = data(ds), *const of_q = data(dq);
  for_rows(N, [&](int64_t i) {
    float* const to = of_q + i * out;
    for (int64_t e = graph.begin[index(i)]; e < graph.begin[index(i) + 1]; ++e) {
      const float* m = rows + graph.row[index(e)] * out;
      const float of_score = dot(d + i * out, m, out) * (scores[e] > 0 ? 1 : slope);
      of_scores[e] = of_score;
      for (int64_t c = 0; c < out; ++c) to[c] += of_score * m[c];
    }
  });
  SimplifiedGradients g{at::zeros({graph.n_rows(), out}, at::kFloat), at::empty({out}, at::kFloat),
                        at::empty({1}, at::kFloat)};
  at::Tensor d_weight = at::empty({N, out}, at::kFloat);  // of each node
  float *const of_rows = data(g.rows), *const of_weight = data(d_weight);
  for_rows(graph.n_rows(), [&](int64_t r) {
    float* const to = of_rows + r * out;
    for (int64_t at = graph.row_begin[index(r)]; at < graph.row_begin[index(r) + 1]; ++at) {
      const int64_t e = graph.row_edge[index(at)], i = graph.head[index(e)];
      const float score = scores[e], share = score > 0 ? score : slope * score, of_score = of_scores[e];
      for (int64_t c = 0; c < out; ++c) to[c] += share * d[i * out + c] + of_score * (w[c] * rows[i * out + c]);
    }
    if (r >= N) return;
    for (int64_t c = 0; c < out; ++c) {
      to[c] += w[c] * of_q[r * out + c];
      of_weight[r * out + c] = rows[r * out + c] * of_q[r * out + c];
    }
  });
  ops::column_sums(data(std::as_const(d_weight)), N, out, data(g.weight));
  ops::column_sums(data(std::as_const(ds)), graph.n_edges(), 1, data(g.bias));
  return g;
}

}  // namespace

SimplifiedGraph::SimplifiedGraph(const Graph& graph, const KgatData& data, bool between_items)
    : n_relations(graph.n_relations - 2), pair_places(std::vector<int32_t>()) {
  const auto is_item = [&](int32_t node) { return node < data.n_items; };
  // A pair: relation, tail.
  std::vector<std::pair<int32_t, int32_t>> pairs;
  const auto is_taken = [&](size_t e) {
    return graph.relation[e] < 2 || !between_items || (is_item(graph.head[e]) && is_item(graph.tail[e]));
  };
  for (size_t e = 0; e < graph.tail.size(); ++e) {
    if (graph.relation[e] >= 2 && is_taken(e)) pairs.emplace_back(graph.relation[e] - 2, graph.tail[e]);
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  for (size_t p = 0; p < pairs.size(); ++p) {
    const auto place = static_cast<int64_t>(p);
    if (groups.empty() || groups.back().relation != pairs[p].first)
      groups.push_back({pairs[p].first, place, 0, place, 0});
    ++groups.back().n_rows, ++groups.back().n;
    pair_node.push_back(pairs[p].second);
  }
  pair_places = RowPlaces(pair_node);
  const auto N = graph.n_nodes();
  begin.push_back(0);
  for (int64_t i = 0; i < N; ++i) {
    for (auto e = index(graph.row_begin[index(i)]); e < index(graph.row_begin[index(i) + 1]); ++e) {
      if (!is_taken(e)) continue;
      const std::pair pair(graph.relation[e] - 2, graph.tail[e]);
      const bool is_known = graph.relation[e] >= 2;
      const auto place = std::lower_bound(pairs.begin(), pairs.end(), pair) - pairs.begin();
      head.push_back(static_cast<int32_t>(i));
      row.push_back(is_known ? static_cast<int32_t>(N + place) : graph.tail[e]);
    }
    begin.push_back(static_cast<int64_t>(row.size()));
  }
  row_begin.assign(index(n_rows()) + 1, 0);
  for (const int32_t r : row) ++row_begin[index(r) + 1];
  for (size_t r = 0; r + 1 < row_begin.size(); ++r) row_begin[r + 1] += row_begin[r];
  std::vector<int64_t> next(row_begin.begin(), row_begin.end() - 1);
  row_edge.resize(row.size());
  for (size_t e = 0; e < row.size(); ++e) row_edge[index(next[index(row[e])]++)] = static_cast<int32_t>(e);
}

at::Tensor simplified_layer(const UnitContext& u, const SimplifiedGraph& graph, const at::Tensor& x, int64_t out,
                            SimplifiedSaved& saved) {
  saved.rows = project_rows(u, graph, u.narrowed(x), out);
  return u.graph_ops.simplified_edges(u, saved);
}

at::Tensor simplified_edges(const UnitContext& u, const SimplifiedGraph& graph, SimplifiedSaved& saved) {
  const int64_t N = graph.n_nodes(), out = saved.rows.size(1);
  const auto slope = static_cast<float>(u.config.slope);
  saved.scores = at::empty({graph.n_edges()}, at::kFloat);
  saved.norms = at::empty({N}, at::kFloat);
  const at::Tensor weight = ops::vector(ops::param(u.view, kAttentionWeight), u.device);
  const float bias = ops::vector(ops::param(u.view, kAttentionBias), u.device).item<float>();
  at::Tensor y = at::zeros({N, out}, at::kFloat);
  const float *rows = data(std::as_const(saved.rows)), *w = data(weight);
  float *const all = data(y), *const scores = data(saved.scores);
  for_row_ranges(N, [&](int64_t first, int64_t end) {
    std::vector<float> q(index(out));
    for (int64_t i = first; i < end; ++i) {
      for (int64_t c = 0; c < out; ++c) q[index(c)] = w[c] * rows[i * out + c];
      float* const to = all + i * out;
      for (int64_t e = graph.begin[index(i)]; e < graph.begin[index(i) + 1]; ++e) {
        const float* m = rows + graph.row[index(e)] * out;
        const float score = dot(q.data(), m, out) + bias, share = score > 0 ? score : slope * score;
        scores[e] = score;
        for (int64_t c = 0; c < out; ++c) to[c] += share * m[c];
      }
      for (int64_t c = 0; c < out; ++c) to[c] = std::max(to[c], 0.0F);
    }
  });
  y = ops::dropout(u.dropout(), std::move(y));
  float *const dropped = data(y), *const norms = data(saved.norms);
  row_norms(dropped, N, out, norms);
  for_rows(N, [=](int64_t i) {
    const float factor = kLength / norms[i];
    for (int64_t c = 0; c < out; ++c) dropped[i * out + c] *= factor;
  });
  return y;
}

at::Tensor simplified_backward(const UnitContext& u, const SimplifiedGraph& graph, const at::Tensor& dy,
                               const at::Tensor& x, const at::Tensor& y, const SimplifiedSaved& saved) {
  const SimplifiedGradients g = u.graph_ops.simplified_edges_backward(u, dy, y, saved);
  ops::give(ops::param(u.view, kAttentionWeight), g.weight);
  ops::give(ops::param(u.view, kAttentionBias), g.bias);
  return project_rows_backward(u, graph, g.rows, u.narrowed(x));
}

SimplifiedGradients simplified_edges_backward(const UnitContext& u, const SimplifiedGraph& graph, const at::Tensor& dy,
                                              const at::Tensor& y, const SimplifiedSaved& saved) {
  const at::Tensor dz = shape_backward(u, dy, y, saved.norms);
  const at::Tensor weight = ops::vector(ops::param(u.view, kAttentionWeight), u.device);
  return edges_backward(graph, dz, weight, static_cast<float>(u.config.slope), saved);
}

LayerCost simplified_cost(const SimplifiedGraph& graph, int64_t in, int64_t out) {
  const auto N = static_cast<double>(graph.n_nodes()), rows = static_cast<double>(graph.n_rows());
  const auto E = static_cast<double>(graph.n_edges()), width = static_cast<double>(out);
  const double products = 2 * rows * static_cast<double>(in) * width;
  const auto block = [](double numel) { return ddh::ActivationAllocator::block_bytes(numel * sizeof(float)); };
  // An edge costs a score and a sum in the forward; two gradients of scores and sums, and one of each end, in the backward.
  return {products + 4 * E * width, 2 * products + 8 * E * width,
          block(rows * width) + block(E) + block(N) + block(N * width)};
}

}  // namespace kgat
