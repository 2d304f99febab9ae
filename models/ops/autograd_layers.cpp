// SPDX-License-Identifier: Apache-2.0
#include "autograd_layers.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <optional>

#include "ddh/sdk/torch/device.hpp"
#include "depthwise.hpp"
#include "linear.hpp"
#include "matrix.hpp"
#include "rows.hpp"

namespace ops::autograd {
namespace {

std::optional<at::Tensor> given(const at::Tensor& t) { return t.defined() ? std::optional(t) : std::nullopt; }

// x (rows, in), weight (out, in), bias (out) or none. `products` outlives the graph.
struct Product : torch::autograd::Function<Product> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, Products* products) {
    // A frozen weight has no gradient, so its input is not kept.
    ctx->save_for_backward({weight.requires_grad() ? x : at::Tensor(), weight});
    ctx->saved_data["has_bias"] = bias.has_value();
    ctx->saved_data["products"] = reinterpret_cast<int64_t>(products);
    at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
    products->forward({x.size(0), x.size(1), weight.size(0)}, operand(x), operand(weight),
                      bias ? operand(*bias) : nullptr, result(y));
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const torch::autograd::variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], dy = gradients[0].contiguous();
    auto& products = *reinterpret_cast<Products*>(ctx->saved_data["products"].toInt());
    const LinearShape shape{dy.size(0), weight.size(1), weight.size(0)};
    torch::autograd::variable_list out(4);
    if (ctx->needs_input_grad(0)) {
      out[0] = at::empty({shape.rows, shape.in}, dy.options());
      products.backward_input(shape, operand(dy), operand(weight), result(out[0]));
    }
    if (ctx->needs_input_grad(1)) {
      const at::Tensor dw = at::empty(weight.sizes(), at::kFloat);
      products.backward_weight(shape, operand(dy), operand(x), dw.mutable_data_ptr<float>(), /*add=*/false);
      out[1] = dw.to(weight.scalar_type());
    }
    if (ctx->saved_data["has_bias"].toBool() && ctx->needs_input_grad(2))
      out[2] = column_sums(widened(dy)).to(dy.scalar_type());
    return out;
  }
};

}  // namespace

at::Tensor linear(Products& products, const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias) {
  if (ddh::by_operators(x)) return at::linear(x, weight, bias);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  const at::Tensor rows = x.reshape({-1, x.size(-1)}).contiguous();
  return Product::apply(rows, weight, bias, &products).view(sizes);
}

bool is_pointwise(const at::Tensor& x, const at::Tensor& weight, const ConvolutionOptions& o) {
  return takes_own_kernels(x) && has_rows_of_channels(x) && weight.size(2) == 1 && weight.size(3) == 1 &&
         o.stride == 1 && o.padding == 0 && o.groups == 1;
}

at::Tensor pointwise(Products& products, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor rows = x.permute({0, 2, 3, 1}).reshape({-1, x.size(1)});
  const at::Tensor y = linear(products, rows, weight.view({weight.size(0), -1}), given(bias));
  return y.view({x.size(0), x.size(2), x.size(3), weight.size(0)}).permute({0, 3, 1, 2});
}

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const ConvolutionOptions& o) {
  if (weight.dim() == 5) {
    const std::array<int64_t, 3> stride = {o.stride, o.stride, o.stride}, dilation = {1, 1, 1};
    const std::array<int64_t, 3> padding = {o.padding, o.padding, o.padding};
    return at::conv3d(x, weight, given(bias), stride, padding, dilation, o.groups);
  }
  if (!bias.defined() && fits_depthwise(x, weight, o.groups)) return depthwise(x, weight, o.stride, o.padding);
  const std::array<int64_t, 2> stride = {o.stride, o.stride}, padding = {o.padding, o.padding}, dilation = {1, 1};
  return at::conv2d(x, weight, given(bias), stride, padding, dilation, o.groups);
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  return at::layer_norm(x, {x.size(-1)}, widened(weight), widened(bias), eps);
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  // LibTorch's fused attentions for GPUs have no deterministic backward in fp32.
  const at::Tensor y = ddh::by_operators(q)
                           ? std::get<0>(at::_scaled_dot_product_attention_math(q, k, v, {}, 0.0, causal))
                           : at::scaled_dot_product_attention(q, k, v, {}, 0.0, causal);
  return y.transpose(1, 2).flatten(2);
}

}  // namespace ops::autograd
