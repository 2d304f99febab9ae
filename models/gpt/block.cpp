// SPDX-License-Identifier: Apache-2.0
//
// One transformer block: x += c_proj(attention(ln_1(x))); x += mlp(ln_2(x)).
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <cmath>

#include "dropout.hpp"
#include "layers.hpp"
#include "linear.hpp"
#include "view.hpp"

namespace gpt {
namespace {

// Layers of a block in the order of its view; each has a weight, and a bias where the model has biases.
enum Layer : uint32_t { kLn1, kAttn, kAttnProj, kLn2, kFc, kMlpProj };

// q, k and v as (B, H, T, D), views of (B, T, 3, H, D).
struct Qkv {
  at::Tensor q, k, v;
  explicit Qkv(const at::Tensor& qkv) : Qkv(qkv.permute({2, 0, 3, 1, 4}), 0) {}

 private:
  Qkv(const at::Tensor& p, int) : q(p.select(0, 0)), k(p.select(0, 1)), v(p.select(0, 2)) {}
};

bool has_attention_dropout(const UnitContext& u) { return u.training && u.config.dropout > 0; }

// softmax(q k^T / sqrt(D)) over the past, with dropout on the probabilities.
at::Tensor explicit_attention(const UnitContext& u, const Qkv& h, BlockSaved& saved) {
  const double scale = 1 / std::sqrt(static_cast<double>(h.q.size(3)));
  const at::Tensor future = at::ones({u.batch.T, u.batch.T}, at::kBool).triu_(1);
  at::Tensor scores = at::matmul(h.q, h.k.transpose(2, 3)).mul_(scale);
  scores.masked_fill_(future, -std::numeric_limits<float>::infinity());
  saved.probabilities = at::softmax(scores, 3);
  return at::matmul(dropout(u, Site::kAttention, saved.probabilities.clone()), h.v);
}

void explicit_attention_backward(const UnitContext& u, const Qkv& h, const at::Tensor& d_out, const BlockSaved& saved,
                                 Qkv& d) {
  const double scale = 1 / std::sqrt(static_cast<double>(h.q.size(3)));
  const at::Tensor dropped = dropout(u, Site::kAttention, saved.probabilities.clone());
  d.v.copy_(at::matmul(dropped.transpose(2, 3), d_out));
  const at::Tensor d_p = dropout(u, Site::kAttention, at::matmul(d_out, h.v.transpose(2, 3)).contiguous());
  const at::Tensor d_scores = at::_softmax_backward_data(d_p, saved.probabilities, 3, at::kFloat).mul_(scale);
  d.q.copy_(at::matmul(d_scores, h.k));
  d.k.copy_(at::matmul(d_scores.transpose(2, 3), h.q));
}

// (N, C) -> (N, C), fp32
at::Tensor attention(const UnitContext& u, const at::Tensor& y, BlockSaved& saved) {
  const int64_t B = u.batch.B, T = u.batch.T, C = u.config.width, H = u.config.n_head;
  saved.qkv = linear(u, kAttn, y, 3 * C, u.config.compute).view({B, T, 3, H, C / H});
  const Qkv h(widened(saved.qkv));
  at::Tensor out;  // (B, H, T, D)
  if (has_attention_dropout(u)) {
    out = explicit_attention(u, h, saved);
  } else {
    std::tie(out, saved.log_sum_exp) = at::_scaled_dot_product_flash_attention_for_cpu(h.q, h.k, h.v, 0.0, true);
  }
  saved.attended = narrowed(u, out.transpose(1, 2).reshape({B * T, C}));
  return linear(u, kAttnProj, saved.attended, C, at::kFloat);
}

at::Tensor attention_backward(const UnitContext& u, const at::Tensor& dy, const BlockSaved& saved) {
  const int64_t B = u.batch.B, T = u.batch.T, C = u.config.width, H = u.config.n_head;
  const auto heads = [&](const at::Tensor& merged) { return merged.view({B, T, H, C / H}).transpose(1, 2); };
  const at::Tensor d_out = heads(linear_backward(u, kAttnProj, dy, saved.attended, at::kFloat));
  at::Tensor d_qkv = at::empty({B, T, 3, H, C / H}, at::kFloat);
  const Qkv h(widened(saved.qkv));
  Qkv d(d_qkv);
  if (saved.probabilities.defined()) {
    explicit_attention_backward(u, h, d_out, saved, d);
  } else {
    const auto [d_q, d_k, d_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        d_out, h.q, h.k, h.v, heads(widened(saved.attended)), saved.log_sum_exp, 0.0, true);
    d.q.copy_(d_q);
    d.k.copy_(d_k);
    d.v.copy_(d_v);
  }
  return linear_backward(u, kAttn, narrowed(u, d_qkv.view({B * T, 3 * C})), saved.y_1, at::kFloat);
}

c10::string_view gelu_form(const UnitContext& u) { return u.config.tanh_gelu ? "tanh" : "none"; }

}  // namespace

at::Tensor block(const UnitContext& u, const at::Tensor& x, BlockSaved& saved) {
  const int64_t C = u.config.width;
  saved.x = x;
  std::tie(saved.y_1, saved.mean_1, saved.rstd_1) = layer_norm(u, kLn1, x);
  saved.x_mid = dropout(u, Site::kAttentionOut, attention(u, saved.y_1, saved)).add_(x);
  std::tie(saved.y_2, saved.mean_2, saved.rstd_2) = layer_norm(u, kLn2, saved.x_mid);
  saved.fc = linear(u, kFc, saved.y_2, 4 * C, u.config.compute);
  saved.act = at::gelu(saved.fc, gelu_form(u));
  return dropout(u, Site::kMlpOut, linear(u, kMlpProj, saved.act, C, at::kFloat)).add_(saved.x_mid);
}

at::Tensor block_backward(const UnitContext& u, at::Tensor dx, BlockSaved& saved) {
  const bool drops = u.training && u.config.dropout > 0;
  const auto branch = [&](Site site) { return narrowed(u, drops ? dropout(u, site, dx.clone()) : dx); };

  const at::Tensor d_act = linear_backward(u, kMlpProj, branch(Site::kMlpOut), saved.act, u.config.compute);
  const at::Tensor d_fc = at::gelu_backward(d_act, saved.fc, gelu_form(u));
  const at::Tensor d_y2 = linear_backward(u, kFc, d_fc, saved.y_2, at::kFloat);
  dx = layer_norm_backward(u, kLn2, d_y2, saved.x_mid, saved.mean_2, saved.rstd_2).add_(dx);

  const at::Tensor d_y1 = attention_backward(u, branch(Site::kAttentionOut), saved);
  return layer_norm_backward(u, kLn1, d_y1, saved.x, saved.mean_1, saved.rstd_1).add_(dx);
}

}  // namespace gpt
