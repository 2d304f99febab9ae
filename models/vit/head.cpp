// SPDX-License-Identifier: Apache-2.0
//
// The head: final layer norm of the class tokens (a norm goes row by row, so the other tokens need none), classifier,
// cross-entropy.
#include <ATen/ops/zeros.h>

#include "../ops/losses.hpp"
#include "layers.hpp"

namespace vit {
namespace {

enum Param : uint32_t { kNorm = 0, kClassifier = 2 };

}  // namespace

at::Tensor head(const UnitContext& u, const at::Tensor& x, HeadSaved& saved) {
  saved.x = x.view({u.batch.B, u.config.tokens(), u.config.width}).select(1, 0).contiguous();
  std::tie(saved.y, saved.mean, saved.rstd) =
      ops::layer_norm(ops::affine(u.view, kNorm), saved.x, u.config.eps, u.config.compute);
  saved.logits = ops::linear(u.products, ops::affine(u.view, kClassifier), saved.y, u.config.classes, at::kFloat);
  return ops::cross_entropy(saved.logits, u.batch.targets, saved.log_sum_exp);
}

at::Tensor head_backward(const UnitContext& u, double seed_scale, const HeadSaved& saved) {
  const int64_t B = u.batch.B, T = u.config.tokens(), C = u.config.width;
  const at::Tensor d_logits =
      narrowed(u, ops::cross_entropy_backward(saved.logits, u.batch.targets, saved.log_sum_exp, seed_scale));
  const at::Tensor dy =
      ops::linear_backward(u.products, ops::affine(u.view, kClassifier), d_logits, saved.y, at::kFloat);
  at::Tensor dx = at::zeros({B, T, C}, dy.options());
  dx.select(1, 0).copy_(ops::layer_norm_backward(ops::affine(u.view, kNorm), dy, saved.x, saved.mean, saved.rstd));
  return dx.view({B * T, C});
}

}  // namespace vit
