// SPDX-License-Identifier: Apache-2.0
//
// Token and position embeddings.
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>
#include <algorithm>
#include <cstring>
#include <numeric>

#include "../ops/blocks.hpp"
#include "../ops/linear.hpp"
#include "../ops/view.hpp"
#include "dropout.hpp"
#include "layers.hpp"

namespace gpt {

at::Tensor token_embedding(const UnitContext& u) {
  const at::Tensor rows = ops::table(ops::param(u.view, 0), u.config.vocab, u.config.width, u.batch.ids.device());
  return at::index_select(rows, 0, u.batch.ids.view(-1)).to(at::kFloat);
}

namespace {

// The tokens of a batch by id, and in the order of the batch for each id.
struct TokensById {
  explicit TokensById(const GptBatch& batch) : ids(batch.ids), n(batch.B * batch.T), order(static_cast<size_t>(n)) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return id(a) < id(b); });
  }
  [[nodiscard]] int64_t id(int64_t token) const { return ids.const_data_ptr<int64_t>()[token]; }

  at::Tensor ids;
  int64_t n;
  std::vector<int64_t> order;
};

// Adds to `to` the gradients of the ids from `first` on, `rows` of them. Each is the sum over its tokens, complete before it is
// added.
void add_rows_of(const TokensById& tokens, const at::Tensor& dx, int64_t first, int64_t rows, float* to) {
  const int64_t C = dx.size(1);
  const auto* from = dx.const_data_ptr<float>();
  const auto begin = std::partition_point(tokens.order.begin(), tokens.order.end(),
                                          [&](int64_t token) { return tokens.id(token) < first; });
  std::vector<float> row(static_cast<size_t>(C));
  for (auto at = begin; at != tokens.order.end() && tokens.id(*at) < first + rows;) {
    const int64_t id = tokens.id(*at);
    std::fill(row.begin(), row.end(), 0.0F);
    for (; at != tokens.order.end() && tokens.id(*at) == id; ++at) {
      for (int64_t c = 0; c < C; ++c) row[static_cast<size_t>(c)] += from[*at * C + c];
    }
    float* const of_id = to + (id - first) * C;
    for (int64_t c = 0; c < C; ++c) of_id[c] += row[static_cast<size_t>(c)];
  }
}

}  // namespace

void token_embedding_backward(const UnitContext& u, const at::Tensor& dx) {
  const ddh_param_view& wte = ops::param(u.view, 0);
  if (wte.grad == nullptr && !ddh::is_later(wte)) return;
  const int64_t C = u.config.width, V = u.config.vocab;
  if (ddh::by_operators(dx)) {
    // LibTorch adds the rows of a token in the order of the batch too (deterministic algorithms are on).
    return ops::give_or_keep(u.later, wte, at::zeros({V, C}, dx.options()).index_add_(0, u.batch.ids.view(-1), dx));
  }
  const TokensById tokens(u.batch);
  if (ddh::is_later(wte))
    return u.later.keep(wte, [tokens, dx](const ddh_grad_block& block) {
      if (block.grad_mode != DDH_GRAD_ADD) std::memset(block.grad, 0, block.numel * sizeof(float));
      const int64_t width = dx.size(1);
      add_rows_of(tokens, dx, static_cast<int64_t>(block.offset) / width, static_cast<int64_t>(block.numel) / width,
                  block.grad);
    });
  if (!ops::adds(wte)) std::memset(wte.grad, 0, wte.numel * sizeof(float));
  add_rows_of(tokens, dx, 0, V, ops::grad(wte));
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
