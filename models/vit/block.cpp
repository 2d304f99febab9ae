// SPDX-License-Identifier: Apache-2.0
//
// One encoder block: x += projection(attention(norm_1(x))); x += mlp(norm_2(x)).
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "../ops/gelu.hpp"
#include "layers.hpp"

namespace vit {
namespace {

// The parameters of a block in the order of its view (names.hpp): each layer has a weight and a bias. Query, key and value
// are one layer or three.
struct Layers {
  explicit Layers(const ddh_unit_view& v)
      : view(v),
        n_qkv(v.n_params / 2 - 5),
        norm_1(layer(0)),
        projection(layer(1 + n_qkv)),
        norm_2(layer(2 + n_qkv)),
        fc_1(layer(3 + n_qkv)),
        fc_2(layer(4 + n_qkv)) {}
  [[nodiscard]] ops::Affine qkv(uint32_t part) const { return layer(1 + part); }

  const ddh_unit_view& view;
  const uint32_t n_qkv;  // 1 or 3
  const ops::Affine norm_1, projection, norm_2, fc_1, fc_2;

 private:
  [[nodiscard]] ops::Affine layer(uint32_t i) const { return ops::affine(view, 2 * i); }
};

// The dropout of a dense layer's result, and stochastic depth of its branch. The backward is the same call.
at::Tensor drop(const UnitContext& u, Site site, Site path, at::Tensor x) {
  const ops::DropoutPlace whole = place(u, path, u.config.drop_path(u.layer));
  return ops::drop_samples(whole, dropout(u, site, std::move(x)), u.batch.B);
}

// The gradient of a branch's result in the compute dtype; dx stays as it is.
at::Tensor branch_gradient(const UnitContext& u, Site site, Site path, const at::Tensor& dx) {
  const bool drops = u.training && (u.config.dropout > 0 || u.config.drop_path(u.layer) > 0);
  return narrowed(u, drops ? drop(u, site, path, dx.clone()) : dx);
}

// The columns of (rows, 3 C) that belong to a part of query, key and value.
void* columns(const at::Tensor& qkv, int64_t first) { return ops::result(qkv.narrow(1, first, 1)).data; }

// (rows, C) -> (rows, 3 C), in the compute dtype
at::Tensor query_key_value(const UnitContext& u, const Layers& l, const at::Tensor& y) {
  const int64_t rows = y.size(0), C = u.config.width, out = 3 * C / l.n_qkv;
  at::Tensor qkv = at::empty({rows, 3 * C}, y.options());
  for (uint32_t part = 0; part < l.n_qkv; ++part) {
    const ops::Affine layer = l.qkv(part);
    u.products.forward({rows, C, out, 0, 0, 3 * C}, ops::operand(y), layer.weight.data, layer.bias->data,
                       {columns(qkv, part * out), ops::dtype_of(u.config.compute)});
  }
  return qkv;
}

// Returns the gradient of y (rows, C) in fp32; d_qkv (rows, 3 C) in the compute dtype.
at::Tensor query_key_value_backward(const UnitContext& u, const Layers& l, const at::Tensor& d_qkv,
                                    const at::Tensor& y) {
  const int64_t rows = y.size(0), C = u.config.width, out = 3 * C / l.n_qkv;
  std::vector<at::Tensor> weights;
  for (uint32_t part = 0; part < l.n_qkv; ++part) {
    const ops::Affine layer = l.qkv(part);
    const ddh_param_view& w = layer.weight;
    if (w.grad != nullptr)
      u.products.backward_weight({rows, C, out, 0, 0, 3 * C}, columns(d_qkv, part * out), ops::operand(y), ops::grad(w),
                                 ops::adds(w));
    ops::give_bias_gradient(layer.bias, d_qkv.narrow(1, part * out, out).contiguous());
    weights.push_back(ops::table(w, out, C, y.device()));
  }
  const at::Tensor weight = l.n_qkv == 1 ? weights[0] : at::cat(weights);  // (3 C, C)
  at::Tensor dy = at::empty({rows, C}, y.options().dtype(at::kFloat));
  u.products.backward_input({rows, C, 3 * C}, ops::operand(d_qkv), ops::operand(weight), ops::result(dy));
  return dy;
}

at::Tensor attention_branch(const UnitContext& u, const Layers& l, BlockSaved& saved) {
  const ops::AttentionShape s = u.attention();
  const ops::DropoutPlace dropped = place(u, Site::kAttention, u.config.attention_dropout);
  saved.qkv = query_key_value(u, l, saved.y_1).view({s.B, s.T, 3, s.H, s.D});
  saved.attended = narrowed(u, ops::attention(s, dropped, saved.qkv, saved.attention));
  return ops::linear(u.products, l.projection, saved.attended, u.config.width, at::kFloat);
}

at::Tensor attention_branch_backward(const UnitContext& u, const Layers& l, const at::Tensor& dy,
                                     const BlockSaved& saved) {
  const ops::DropoutPlace dropped = place(u, Site::kAttention, u.config.attention_dropout);
  const at::Tensor d_out = ops::linear_backward(u.products, l.projection, dy, saved.attended, at::kFloat);
  const at::Tensor d_qkv =
      ops::attention_backward(u.attention(), dropped, saved.qkv, saved.attended, d_out, saved.attention);
  return query_key_value_backward(u, l, narrowed(u, d_qkv.view({dy.size(0), 3 * u.config.width})), saved.y_1);
}

// The activation's result before its dropout is not needed by the backward.
at::Tensor mlp_branch(const UnitContext& u, const Layers& l, BlockSaved& saved) {
  saved.fc = ops::linear(u.products, l.fc_1, saved.y_2, u.config.mlp_width, u.config.compute);
  saved.act = ops::gelu(ops::Gelu::kErf, saved.fc);
  if (u.training && u.config.dropout > 0)
    saved.act = narrowed(u, dropout(u, Site::kMlpHidden, ops::widened(saved.act)));
  return ops::linear(u.products, l.fc_2, saved.act, u.config.width, at::kFloat);
}

at::Tensor mlp_branch_backward(const UnitContext& u, const Layers& l, const at::Tensor& dy, const BlockSaved& saved) {
  at::Tensor d_act = ops::linear_backward(u.products, l.fc_2, dy, saved.act, u.config.compute);
  if (u.training && u.config.dropout > 0) d_act = narrowed(u, dropout(u, Site::kMlpHidden, ops::widened(d_act)));
  const at::Tensor d_fc = ops::gelu_backward(ops::Gelu::kErf, d_act, saved.fc);
  return ops::linear_backward(u.products, l.fc_1, d_fc, saved.y_2, at::kFloat);
}

}  // namespace

at::Tensor block(const UnitContext& u, const at::Tensor& x, BlockSaved& saved) {
  const Layers l(u.view);
  const double eps = u.config.eps;
  saved.x = x;
  std::tie(saved.y_1, saved.mean_1, saved.rstd_1) = ops::layer_norm(l.norm_1, x, eps, u.config.compute);
  saved.x_mid = drop(u, Site::kAttentionOut, Site::kAttentionPath, attention_branch(u, l, saved)).add_(x);
  std::tie(saved.y_2, saved.mean_2, saved.rstd_2) = ops::layer_norm(l.norm_2, saved.x_mid, eps, u.config.compute);
  return drop(u, Site::kMlpOut, Site::kMlpPath, mlp_branch(u, l, saved)).add_(saved.x_mid);
}

at::Tensor block_backward(const UnitContext& u, at::Tensor dx, BlockSaved& saved) {
  const Layers l(u.view);
  const at::Tensor d_y2 = mlp_branch_backward(u, l, branch_gradient(u, Site::kMlpOut, Site::kMlpPath, dx), saved);
  dx = ops::layer_norm_backward(l.norm_2, d_y2, saved.x_mid, saved.mean_2, saved.rstd_2, dx);

  const at::Tensor d_attended = branch_gradient(u, Site::kAttentionOut, Site::kAttentionPath, dx);
  const at::Tensor d_y1 = attention_branch_backward(u, l, d_attended, saved);
  return ops::layer_norm_backward(l.norm_1, d_y1, saved.x, saved.mean_1, saved.rstd_1, dx);
}

}  // namespace vit
