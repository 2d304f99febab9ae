// SPDX-License-Identifier: Apache-2.0
#include "depthwise.hpp"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "depthwise_kernels.hpp"
#include "rows.hpp"

namespace ops {
namespace {

DepthwiseShape shape_of(const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding) {
  const int64_t kernel = weight.size(2);
  const auto out = [&](int64_t side) { return (side + 2 * padding - kernel) / stride + 1; };
  return {x.size(0), x.size(1), x.size(2), x.size(3), out(x.size(2)), out(x.size(3)), kernel, stride, padding};
}

// (C, 1, k, k) -> (taps, C) fp32
at::Tensor by_taps(const at::Tensor& weight) {
  return weight.view({weight.size(0), -1}).t().to(at::kFloat).contiguous();
}

struct Depthwise : torch::autograd::Function<Depthwise> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            int64_t stride, int64_t padding) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["stride"] = stride;
    ctx->saved_data["padding"] = padding;
    const DepthwiseShape s = shape_of(x, weight, stride, padding);
    const at::Tensor w = by_taps(weight);
    at::Tensor y =
        at::empty({s.samples, s.channels, s.out_height, s.out_width}, x.options(), at::MemoryFormat::ChannelsLast);
    with_elements(x, [&]<class Element>(const Element* from) {
      ops::depthwise(s, from, w.const_data_ptr<float>(), mutable_elements<Element>(y));
    });
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const torch::autograd::variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], dy = by_pixels(gradients[0]);
    const DepthwiseShape s = shape_of(x, weight, ctx->saved_data["stride"].toInt(), ctx->saved_data["padding"].toInt());
    torch::autograd::variable_list out(4);
    with_elements(x, [&]<class Element>(const Element* from) {
      const auto* const gradient = elements<Element>(dy);
      if (ctx->needs_input_grad(0)) {
        out[0] = at::empty(x.sizes(), x.options(), at::MemoryFormat::ChannelsLast);
        depthwise_backward_input(s, gradient, by_taps(weight).const_data_ptr<float>(),
                                 mutable_elements<Element>(out[0]));
      }
      if (ctx->needs_input_grad(1)) {
        const at::Tensor dw = at::empty({s.taps(), s.channels}, at::kFloat);
        depthwise_backward_weight(s, from, gradient, dw.mutable_data_ptr<float>());
        out[1] = dw.t().to(weight.scalar_type()).contiguous().view(weight.sizes());
      }
    });
    return out;
  }
};

}  // namespace

bool fits_depthwise(const at::Tensor& x, const at::Tensor& weight, int64_t groups) {
  return takes_own_kernels(x) && has_rows_of_channels(x) && groups > 1 && groups == x.size(1) &&
         weight.size(0) == groups && weight.size(2) == weight.size(3) && weight.size(2) * weight.size(3) <= kMostTaps;
}

at::Tensor depthwise(const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding) {
  return Depthwise::apply(by_pixels(x), weight, stride, padding);
}

}  // namespace ops
