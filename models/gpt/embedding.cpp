// SPDX-License-Identifier: Apache-2.0
//
// Token and position embeddings.
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>
#include <algorithm>
#include <cstring>
#include <numeric>

#include "../ops/linear.hpp"
#include "../ops/view.hpp"
#include "dropout.hpp"
#include "layers.hpp"

namespace gpt {

at::Tensor token_embedding(const UnitContext& u) {
  const at::Tensor rows = ops::table(ops::param(u.view, 0), u.config.vocab, u.config.width, u.batch.ids.device());
  return at::index_select(rows, 0, u.batch.ids.view(-1)).to(at::kFloat);
}

// The gradient of a row is the sum over its tokens in the order of the batch, complete before it is added to the buffer.
void token_embedding_backward(const UnitContext& u, const at::Tensor& dx) {
  const ddh_param_view& wte = ops::param(u.view, 0);
  if (wte.grad == nullptr) return;
  const int64_t C = u.config.width, N = u.batch.B * u.batch.T;
  if (ddh::by_operators(dx)) {
    // LibTorch adds the rows of a token in the order of the batch too (deterministic algorithms are on).
    return ops::give(wte, at::zeros({u.config.vocab, C}, dx.options()).index_add_(0, u.batch.ids.view(-1), dx));
  }
  const int64_t* ids = u.batch.ids.const_data_ptr<int64_t>();
  const auto* from = dx.const_data_ptr<float>();
  std::vector<int64_t> order(static_cast<size_t>(N));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return ids[a] < ids[b]; });
  if (!ops::adds(wte)) std::memset(wte.grad, 0, wte.numel * sizeof(float));
  std::vector<float> row(static_cast<size_t>(C));
  for (size_t i = 0; i < order.size();) {
    const int64_t id = ids[order[i]];
    std::fill(row.begin(), row.end(), 0.0F);
    for (; i < order.size() && ids[order[i]] == id; ++i) {
      for (int64_t c = 0; c < C; ++c) row[static_cast<size_t>(c)] += from[order[i] * C + c];
    }
    float* to = ops::grad(wte) + id * C;
    for (int64_t c = 0; c < C; ++c) to[c] += row[static_cast<size_t>(c)];
  }
}

at::Tensor position_embedding(const UnitContext& u, at::Tensor x) {
  const int64_t B = u.batch.B, T = u.batch.T, C = u.config.width;
  x.view({B, T, C}).add_(ops::table(ops::param(u.view, 0), T, C, x.device()));
  return dropout(u, Site::kEmbedding, std::move(x));
}

void position_embedding_backward(const UnitContext& u, at::Tensor& dx) {
  const int64_t B = u.batch.B, T = u.batch.T, C = u.config.width;
  dx = dropout(u, Site::kEmbedding, std::move(dx));
  const ddh_param_view& wpe = ops::param(u.view, 0);
  if (wpe.grad == nullptr) return;
  at::Tensor gradient = at::zeros({u.config.positions, C}, dx.options());
  gradient.narrow(0, 0, T).copy_(ops::column_sums(dx.view({B, T * C})).view({T, C}));
  ops::give(wpe, gradient);
}

}  // namespace gpt
