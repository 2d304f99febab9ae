// SPDX-License-Identifier: Apache-2.0
#include "language_layers.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ddh/sdk/torch/device.hpp"
#include "row_kernels.hpp"

namespace ops::autograd {
namespace {

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            double eps) {
    const int64_t width = x.size(-1), rows = x.numel() / width;
    at::Tensor y = at::empty_like(x), rstd = at::empty({rows}, x.options());
    rms_norm_rows(x.const_data_ptr<float>(), weight.const_data_ptr<float>(), rows, width, eps,
                  y.mutable_data_ptr<float>(), rstd.mutable_data_ptr<float>());
    ctx->save_for_backward({x, weight, rstd});
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const torch::autograd::variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], dy = gradients[0].contiguous(), dx = at::empty_like(x);
    rms_norm_rows_backward(x.const_data_ptr<float>(), saved[1].const_data_ptr<float>(),
                           saved[2].const_data_ptr<float>(), dy.const_data_ptr<float>(), saved[2].numel(), x.size(-1),
                           dx.mutable_data_ptr<float>());
    return {dx, {}, {}};
  }
};

RotatedRows rows_of(const at::Tensor& x) { return {x.size(0), x.size(1), x.size(2), x.size(3)}; }

struct Rotation : torch::autograd::Function<Rotation> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    ctx->save_for_backward({cos, sin});
    at::Tensor y = at::empty_like(x);
    rotate_rows(rows_of(x), x.const_data_ptr<float>(), cos.const_data_ptr<float>(), sin.const_data_ptr<float>(),
                y.mutable_data_ptr<float>());
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const torch::autograd::variable_list saved = ctx->get_saved_variables();
    const at::Tensor dy = gradients[0].contiguous(), dx = at::empty_like(dy);
    rotate_rows_backward(rows_of(dy), dy.const_data_ptr<float>(), saved[0].const_data_ptr<float>(),
                         saved[1].const_data_ptr<float>(), dx.mutable_data_ptr<float>());
    return {dx, {}, {}};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor w = weight.to(at::kFloat);
  if (!ddh::by_operators(x) && !w.requires_grad()) return RmsNorm::apply(x.contiguous(), w, eps);
  return x.mul(x.square().mean(-1, /*keepdim=*/true).add(eps).rsqrt()).mul(w);
}

at::Tensor rotated(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  if (!ddh::by_operators(x)) return Rotation::apply(x.contiguous(), cos, sin);
  const int64_t half = x.size(-1) / 2;
  const at::Tensor swapped = at::cat({x.narrow(-1, half, half).neg(), x.narrow(-1, 0, half)}, -1);
  return x.mul(cos.unsqueeze(1)).add(swapped.mul(sin.unsqueeze(1)));
}

}  // namespace ops::autograd
