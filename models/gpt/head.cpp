// SPDX-License-Identifier: Apache-2.0
//
// The head: final layer norm, logits against the (tied) embedding, cross-entropy. The gradient of the logits overwrites
// the logits.
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "../ops/blocks.hpp"
#include "../ops/rows.hpp"
#include "../ops/softmax_kernels.hpp"
#include "../ops/view.hpp"
#include "ddh/sdk/torch/pieces.hpp"
#include "layers.hpp"
#include "linear.hpp"

namespace gpt {
namespace {

constexpr uint32_t kLnF = 0;

// The last parameter of the view: the tied embedding, or the head's own weight. (V, C)
const ddh_param_view& head_weight(const UnitContext& u) { return ops::param(u.view, u.view.n_params - 1); }

// Calls body(first row, rows) for chunks of the logits, each on one thread.
template <class Body>
void for_chunks(const at::Tensor& logits, const Body& body) {
  ops::for_row_chunks(logits.size(0), logits.size(1), body, kLogitsOfChunk);
}

// Stores the logits' gradient in 16 bits at the front of the logits' memory. Each row is rounded into its own first half. Then
// rows n to 2 n - 1 move together to the front of their memory, for n = 1, 2, 4, ...: that part of it holds no row any more.
at::Tensor narrowed_in_place(const UnitContext& u, const at::Tensor& logits) {
  const int64_t N = logits.size(0), V = logits.size(1), row_bytes = 2 * V;
  const int32_t type = ops::dtype_of(u.config.compute);
  for_chunks(logits, [&](int64_t first, int64_t rows) {
    const at::Tensor halves = ops::matrix(logits.mutable_data_ptr<float>() + first * V, rows, V, type, 2 * V);
    halves.copy_(narrowed(u, logits.narrow(0, first, rows)));
  });
  auto* const front = static_cast<char*>(logits.mutable_data_ptr());
  for (int64_t n = 1; n < N; n *= 2) {
    ddh::for_pieces(std::min(n, N - n), [&](int64_t i) {
      std::memcpy(front + (n + i) * row_bytes, front + (n + i) * 2 * row_bytes, static_cast<size_t>(row_bytes));
    });
  }
  return ops::matrix(front, N, V, type);
}

// By operators: the targets as indices (N, 1), those that do not count as 0; and which do not count (N).
struct Targets {
  explicit Targets(const GptBatch& batch)
      : ignored(batch.targets.view(-1).eq(kIgnoredTarget)),
        index(batch.targets.view(-1).masked_fill(ignored, 0).unsqueeze(1)) {}
  at::Tensor ignored, index;
};

// Logarithms of probabilities take the place of the logits: in 16 bits on a GPU a pass over the logits takes as long as their
// product. The operator reads an element before it writes it.
at::Tensor loss_by_operators(const GptBatch& batch, HeadSaved& saved) {
  const Targets targets(batch);
  at::_log_softmax_out(saved.logits, saved.logits, 1, /*half_to_float=*/false);
  const at::Tensor losses = saved.logits.gather(1, targets.index).squeeze(1).to(at::kDouble).neg_();
  return losses.masked_fill_(targets.ignored, 0).sum();
}

// As logits_backward, but 16 bits are stored elsewhere.
at::Tensor logits_backward_by_operators(const UnitContext& u, float seed, const HeadSaved& saved) {
  const Targets targets(u.batch);
  const at::Tensor p = saved.logits.exp_();
  p.scatter_(1, targets.index, p.gather(1, targets.index).sub_(1));
  const at::Tensor seeds = at::full({p.size(0), 1}, seed, p.options()).masked_fill_(targets.ignored.unsqueeze(1), 0);
  if (u.config.compute == at::kFloat) return p.mul_(seeds);
  at::Tensor d = at::empty(p.sizes(), p.options().dtype(u.config.compute));
  return at::mul_out(d, p, seeds);  // multiplied and rounded in one pass
}

// The gradient of the logits, in the compute dtype and in their memory.
at::Tensor logits_backward(const UnitContext& u, double seed_scale, const HeadSaved& saved) {
  const int64_t V = u.config.vocab;
  const auto seed = static_cast<float>(seed_scale);
  if (ddh::by_operators(saved.logits)) return logits_backward_by_operators(u, seed, saved);
  const int64_t* targets = u.batch.targets.const_data_ptr<int64_t>();
  for_chunks(saved.logits, [&](int64_t first, int64_t rows) {
    auto* const at = saved.logits.mutable_data_ptr<float>() + first * V;
    ops::softmax_rows(at, saved.log_sum_exp.const_data_ptr<float>() + first, rows, V, seed, at);
    for (int64_t n = 0; n < rows; ++n) {
      if (targets[first + n] == kIgnoredTarget) {
        std::fill(at + n * V, at + (n + 1) * V, 0.0F);
      } else {
        at[n * V + targets[first + n]] -= seed;
      }
    }
  });
  return u.config.compute == at::kFloat ? saved.logits : narrowed_in_place(u, saved.logits);
}

}  // namespace

at::Tensor head(const UnitContext& u, const at::Tensor& x, HeadSaved& saved) {
  const int64_t N = x.size(0), V = u.config.vocab;
  saved.x = x;
  std::tie(saved.y, saved.mean, saved.rstd) = layer_norm(u, kLnF, x);
  saved.logits = at::empty({N, V}, x.options());
  u.products.forward({N, u.config.width, V}, ops::operand(saved.y), head_weight(u).data, nullptr,
                     ops::result(saved.logits));
  if (ddh::by_operators(x)) return loss_by_operators(u.batch, saved);
  saved.log_sum_exp = at::empty({N}, at::kFloat);
  for_chunks(saved.logits, [&](int64_t first, int64_t rows) {
    ops::log_sum_exp_rows(saved.logits.const_data_ptr<float>() + first * V, rows, V,
                          saved.log_sum_exp.mutable_data_ptr<float>() + first);
  });
  const int64_t* targets = u.batch.targets.const_data_ptr<int64_t>();
  const auto *logits = saved.logits.const_data_ptr<float>(), *lse = saved.log_sum_exp.const_data_ptr<float>();
  at::Tensor loss = at::zeros({}, at::kDouble);
  double& sum = *loss.mutable_data_ptr<double>();
  for (int64_t n = 0; n < N; ++n) {
    if (targets[n] != kIgnoredTarget)
      sum += static_cast<double>(lse[n]) - static_cast<double>(logits[n * V + targets[n]]);
  }
  return loss;
}

at::Tensor head_backward(const UnitContext& u, double seed_scale, HeadSaved& saved) {
  const int64_t N = saved.x.size(0), V = u.config.vocab, C = u.config.width;
  const ops::LinearShape shape{N, C, V};
  const ddh_param_view& w = head_weight(u);
  const at::Tensor d_logits = logits_backward(u, seed_scale, saved);
  if (u.config.grad_block() > 0)
    ops::give_or_keep_product(u.later, w, u.config.grad_block(), u.products, shape, d_logits, saved.y, {saved.logits});
  else if (w.grad != nullptr)
    u.products.backward_weight(shape, ops::operand(d_logits), ops::operand(saved.y), ops::grad(w), ops::adds(w));
  at::Tensor dy = at::empty({N, C}, saved.x.options());
  u.products.backward_input(shape, ops::operand(d_logits), w.data, ops::result(dy));
  return layer_norm_backward(u, kLnF, dy, saved.x, saved.mean, saved.rstd);
}

}  // namespace gpt
