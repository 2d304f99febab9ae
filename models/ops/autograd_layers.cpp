// SPDX-License-Identifier: Apache-2.0
#include "autograd_layers.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <array>
#include <optional>

#include "ddh/sdk/torch/device.hpp"
#include "depthwise.hpp"
#include "rows.hpp"

namespace ops::autograd {
namespace {

std::optional<at::Tensor> given(const at::Tensor& t) { return t.defined() ? std::optional(t) : std::nullopt; }

at::Tensor widened(const at::Tensor& x) { return x.to(at::kFloat); }

bool is_pointwise(const at::Tensor& x, const at::Tensor& weight, const ConvolutionOptions& o) {
  return has_kernels(x) && has_rows_of_channels(x) && weight.size(2) == 1 && weight.size(3) == 1 && o.stride == 1 &&
         o.padding == 0 && o.groups == 1;
}

// A convolution 1 x 1 as a product of matrices, with pixels as rows. oneDNN's convolution brings the weight into a layout of its
// own each time, which takes longer than the product where images are small.
at::Tensor pointwise(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor rows = x.permute({0, 2, 3, 1}).reshape({-1, x.size(1)});
  const at::Tensor y = at::linear(rows, weight.view({weight.size(0), -1}), given(bias));
  return y.view({x.size(0), x.size(2), x.size(3), weight.size(0)}).permute({0, 3, 1, 2});
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::linear(x.to(weight.scalar_type()), weight, given(bias));
}

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const ConvolutionOptions& o) {
  if (weight.dim() == 5) {
    const std::array<int64_t, 3> stride = {o.stride, o.stride, o.stride}, dilation = {1, 1, 1};
    const std::array<int64_t, 3> padding = {o.padding, o.padding, o.padding};
    return at::conv3d(x, weight, given(bias), stride, padding, dilation, o.groups);
  }
  if (!bias.defined() && fits_depthwise(x, weight, o.groups)) return depthwise(x, weight, o.stride, o.padding);
  if (is_pointwise(x, weight, o)) return pointwise(x, weight, bias);
  const std::array<int64_t, 2> stride = {o.stride, o.stride}, padding = {o.padding, o.padding}, dilation = {1, 1};
  return at::conv2d(x, weight, given(bias), stride, padding, dilation, o.groups);
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  return at::layer_norm(x, {x.size(-1)}, widened(weight), widened(bias), eps);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x.mul(x.square().mean(-1, /*keepdim=*/true).add(eps).rsqrt()).mul(widened(weight));
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  // LibTorch's fused attentions for GPUs have no deterministic backward in fp32.
  const at::Tensor y = ddh::by_operators(q)
                           ? std::get<0>(at::_scaled_dot_product_attention_math(q, k, v, {}, 0.0, causal))
                           : at::scaled_dot_product_attention(q, k, v, {}, 0.0, causal);
  return y.transpose(1, 2).flatten(2);
}

}  // namespace ops::autograd
