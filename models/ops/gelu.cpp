// SPDX-License-Identifier: Apache-2.0
#include "gelu.hpp"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>

#include "ddh/sdk/torch/pieces.hpp"
#include "gelu_kernels.hpp"
#include "rows.hpp"

namespace ops {
namespace {

c10::string_view name_of(Gelu form) { return form == Gelu::kTanh ? "tanh" : "none"; }

}  // namespace

at::Tensor gelu(Gelu form, const at::Tensor& x) {
  if (ddh::by_operators(x)) return at::gelu(x, name_of(form));
  const at::Tensor in = x.contiguous();
  at::Tensor y = at::empty_like(in);
  with_any_elements(in, [&]<class Element>(const Element* from) {
    auto* const to = mutable_elements<Element>(y);
    ddh::for_ranges(in.numel(), [&](int64_t first, int64_t n) { gelu_elements(form, from + first, n, to + first); });
  });
  return y;
}

at::Tensor gelu_backward(Gelu form, const at::Tensor& dy, const at::Tensor& x) {
  if (ddh::by_operators(x)) return at::gelu_backward(dy, x, name_of(form));
  const at::Tensor in = x.contiguous(), gradient = dy.to(x.scalar_type()).contiguous();
  at::Tensor dx = at::empty_like(in);
  with_any_elements(in, [&]<class Element>(const Element* from) {
    const auto* const of_y = elements<Element>(gradient);
    auto* const to = mutable_elements<Element>(dx);
    ddh::for_ranges(in.numel(), [&](int64_t first, int64_t n) {
      gelu_elements_backward(form, of_y + first, from + first, n, to + first);
    });
  });
  return dx;
}

}  // namespace ops
