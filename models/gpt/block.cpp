// SPDX-License-Identifier: Apache-2.0
//
// One transformer block: x += c_proj(attention(ln_1(x))); x += mlp(ln_2(x)).
#include "../ops/attention.hpp"
#include "../ops/gelu.hpp"

#include "dropout.hpp"
#include "layers.hpp"
#include "linear.hpp"

namespace gpt {
namespace {

// Layers of a block in the order of its view. Each has a weight, and a bias if the model has biases.
enum Layer : uint32_t { kLn1, kAttn, kAttnProj, kLn2, kFc, kMlpProj };

ops::AttentionShape attention_shape(const UnitContext& u) {
  return {u.batch.B, u.batch.T, u.config.n_head, u.config.width / u.config.n_head, /*causal=*/true};
}

ops::Gelu activation(const UnitContext& u) { return u.config.tanh_gelu ? ops::Gelu::kTanh : ops::Gelu::kErf; }

// (N, C) -> (N, C), fp32
at::Tensor attention_branch(const UnitContext& u, const at::Tensor& y, BlockSaved& saved) {
  const int64_t C = u.config.width, H = u.config.n_head;
  saved.qkv = linear(u, kAttn, y, 3 * C, u.config.compute).view({u.batch.B, u.batch.T, 3, H, C / H});
  saved.attended =
      narrowed(u, ops::attention(attention_shape(u), place(u, Site::kAttention), saved.qkv, saved.attention));
  return linear(u, kAttnProj, saved.attended, C, at::kFloat);
}

at::Tensor attention_branch_backward(const UnitContext& u, const at::Tensor& dy, const BlockSaved& saved) {
  const at::Tensor d_out = linear_backward(u, kAttnProj, dy, saved.attended, at::kFloat);
  const at::Tensor d_qkv = ops::attention_backward(attention_shape(u), place(u, Site::kAttention), saved.qkv,
                                                   saved.attended, d_out, saved.attention);
  return linear_backward(u, kAttn, narrowed(u, d_qkv.view({dy.size(0), 3 * u.config.width})), saved.y_1, at::kFloat);
}

// A function of its own, so that the gradients of the hidden layer are gone before attention's.
at::Tensor mlp_branch_backward(const UnitContext& u, const at::Tensor& dy, const BlockSaved& saved) {
  const at::Tensor d_act = linear_backward(u, kMlpProj, dy, saved.act, u.config.compute);
  const at::Tensor d_fc = ops::gelu_backward(activation(u), d_act, saved.fc);
  return linear_backward(u, kFc, d_fc, saved.y_2, at::kFloat);
}

}  // namespace

at::Tensor block(const UnitContext& u, const at::Tensor& x, BlockSaved& saved) {
  const int64_t C = u.config.width;
  saved.x = x;
  std::tie(saved.y_1, saved.mean_1, saved.rstd_1) = layer_norm(u, kLn1, x);
  saved.x_mid = dropout(u, Site::kAttentionOut, attention_branch(u, saved.y_1, saved)).add_(x);
  std::tie(saved.y_2, saved.mean_2, saved.rstd_2) = layer_norm(u, kLn2, saved.x_mid);
  saved.fc = linear(u, kFc, saved.y_2, 4 * C, u.config.compute);
  saved.act = ops::gelu(activation(u), saved.fc);
  return dropout(u, Site::kMlpOut, linear(u, kMlpProj, saved.act, C, at::kFloat)).add_(saved.x_mid);
}

at::Tensor block_backward(const UnitContext& u, at::Tensor dx, BlockSaved& saved) {
  const auto branch = [&](Site site) { return narrowed(u, drops(u) ? dropout(u, site, dx.clone()) : dx); };

  const at::Tensor d_y2 = mlp_branch_backward(u, branch(Site::kMlpOut), saved);
  dx = layer_norm_backward(u, kLn2, d_y2, saved.x_mid, saved.mean_2, saved.rstd_2, dx);

  const at::Tensor d_y1 = attention_branch_backward(u, branch(Site::kAttentionOut), saved);
  return layer_norm_backward(u, kLn1, d_y1, saved.x, saved.mean_1, saved.rstd_1, dx);
}

}  // namespace gpt
