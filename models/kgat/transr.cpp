// SPDX-License-Identifier: Apache-2.0
//
// TransR (Lin et al. 2015): each relation has a matrix W_r (d, k) that projects nodes into its space, and a vector e_r there.
// The attention of an edge is (e_t W_r) . tanh(e_h W_r + e_r), and a softmax over the edges of its head.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "layers.hpp"

namespace kgat {
namespace {

enum Param : uint32_t { kRelations, kMatrices };

// Matrix of a relation.
const void* matrix_of(const UnitContext& u, int32_t relation) {
  const ddh_param_view& matrices = ops::param(u.view, kMatrices);
  return static_cast<const char*>(matrices.data) + int64_t{relation} * u.config.embed_dim * u.config.relation_dim *
                                                       static_cast<int64_t>(ddh_dtype_bytes(matrices.dtype));
}

at::Tensor rows_of(const at::Tensor& x, const RelationGroup& group) {
  return x.narrow(0, group.first_row, group.n_rows);
}

}  // namespace

void give_nothing(const ddh_param_view& w, int64_t first, int64_t n, at::Device device) {
  if (n == 0) return;
  at::Tensor to = ops::gradient_of(w, device).narrow(0, first, n);
  if (ops::adds(w)) {
    to.add_(0);  // as an addition of zeros does to -0
  } else {
    to.zero_();
  }
}

namespace {

// Of the matrices: each relation's is a product of its rows of x (rows, d) and dy (rows, k).
struct MatrixGradients {
  ops::Products& products;
  std::vector<RelationGroup> groups;
  at::Tensor x, dy;
  at::Device device;

  // Some relations, or all.
  void write(const ddh_grad_block& block) const {
    const int64_t d = x.size(1), k = dy.size(1), numel = d * k, n = static_cast<int64_t>(block.numel);
    const int64_t first = static_cast<int64_t>(block.offset) / numel;
    ddh_param_view to{};
    to.grad = block.grad, to.numel = block.numel, to.grad_mode = block.grad_mode;
    int64_t done = 0;  // elements of the block
    for (const RelationGroup& group : groups) {
      const int64_t at = (group.relation - first) * numel;
      if (at < 0 || at >= n) continue;
      give_nothing(to, done, at - done, device);
      products.backward_weight({group.n_rows, k, d}, ops::operand(rows_of(x, group)), ops::operand(rows_of(dy, group)),
                               block.grad + at, ops::adds(to));
      done = at + numel;
    }
    give_nothing(to, done, n - done, device);
  }
};

}  // namespace

at::Tensor relation_vectors(const UnitContext& u) {
  return ops::widened(ops::table(ops::param(u.view, kRelations), u.graph.n_relations, u.config.relation_dim, u.device));
}

at::Tensor project(const UnitContext& u, const at::Tensor& x) {
  const int64_t d = u.config.embed_dim, k = u.config.relation_dim;
  const at::Tensor y = at::empty({x.size(0), k}, x.options().dtype(at::kFloat));
  for (const RelationGroup& group : u.batch.groups)
    u.products.backward_input({group.n_rows, k, d}, ops::operand(rows_of(x, group)), matrix_of(u, group.relation),
                              ops::result(rows_of(y, group)));
  return y;
}

at::Tensor project_backward(const UnitContext& u, const at::Tensor& dy, const at::Tensor& x) {
  const int64_t d = u.config.embed_dim, k = u.config.relation_dim;
  const ddh_param_view& w = ops::param(u.view, kMatrices);
  const at::Tensor narrow_dy = u.narrowed(dy);
  const at::Tensor dx = at::empty(x.sizes(), x.options().dtype(at::kFloat));
  const MatrixGradients gradients{u.products, u.batch.groups, x, narrow_dy, u.device};
  if (ddh::is_later(w))
    u.later.keep(w, [gradients](const ddh_grad_block& block) { gradients.write(block); });
  else if (w.grad != nullptr)
    gradients.write({sizeof(ddh_grad_block), w.param, 0, w.numel, ops::grad(w), w.grad_mode, 0});
  for (const RelationGroup& group : u.batch.groups)
    u.products.forward({group.n_rows, k, d}, ops::operand(rows_of(narrow_dy, group)), matrix_of(u, group.relation),
                       nullptr, ops::result(rows_of(dx, group)));
  return dx;
}

void score_edges(const UnitContext& u, const at::Tensor& y, std::vector<float>& scores) {
  const int64_t k = u.config.relation_dim;
  const at::Tensor relations = relation_vectors(u);
  const auto* rows = y.const_data_ptr<float>();
  for (const RelationGroup& group : u.batch.groups) {
    const float* const r = relations.const_data_ptr<float>() + group.relation * k;
    constexpr int64_t kEdgesOfPiece = 256;
    ddh::for_pieces((group.n + kEdgesOfPiece - 1) / kEdgesOfPiece, [&](int64_t piece) {
      const int64_t end = std::min(group.n, (piece + 1) * kEdgesOfPiece);
      std::vector<float> from(static_cast<size_t>(k));
      int32_t of_node = -1;  // of which it is; edges of a head stand together
      for (int64_t i = piece * kEdgesOfPiece; i < end; ++i) {
        const float *head = rows + (group.first_row + i) * k, *tail = head + group.n * k;
        const int32_t node = u.batch.rows[static_cast<size_t>(group.first_row + i)];
        for (int64_t c = 0; c < k && node != of_node; ++c) from[static_cast<size_t>(c)] = std::tanh(head[c] + r[c]);
        of_node = node;
        scores[static_cast<size_t>(u.batch.edges[static_cast<size_t>(group.first + i)])] = dot(tail, from.data(), k);
      }
    });
  }
}

void softmax_of_nodes(const Graph& graph, bool joins_parallel_edges, int64_t first, int64_t n,
                      std::vector<float>& scores) {
  for (auto node = static_cast<size_t>(first); node < static_cast<size_t>(first + n); ++node) {
    const auto begin = static_cast<size_t>(graph.row_begin[node]), end = static_cast<size_t>(graph.row_begin[node + 1]);
    if (begin == end) continue;
    // Edges to one tail stand together. Joined, the first of them has the sum, and the others no weight.
    constexpr float kNone = -INFINITY;
    for (size_t e = begin + 1, first_of_tail = begin; joins_parallel_edges && e < end; ++e) {
      if (graph.tail[e] != graph.tail[first_of_tail]) {
        first_of_tail = e;
      } else {
        scores[first_of_tail] += scores[e];
        scores[e] = kNone;
      }
    }
    const float largest =
        *std::max_element(scores.begin() + static_cast<int64_t>(begin), scores.begin() + static_cast<int64_t>(end));
    float sum = 0;
    for (size_t e = begin; e < end; ++e) sum += scores[e] = std::exp(scores[e] - largest);
    for (size_t e = begin; e < end; ++e) scores[e] /= sum;
  }
}

}  // namespace kgat
