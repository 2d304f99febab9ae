// SPDX-License-Identifier: Apache-2.0
//
// tests/golden/shape_functions.hpp: shapes of results for LibTorch's device `meta`, of operators for which LibTorch has them in
// Python alone. A program that includes this can run models on shapes.
#pragma once

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

namespace ddhost::test::shapes {

using at::Tensor;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using Sizes = c10::SymIntArrayRef;

inline Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.at(static_cast<size_t>(dim < 0 ? dim + x.dim() : dim)) = index.numel();
  return at::empty(sizes, x.options());
}
inline Three layer_norm(const Tensor& x, Sizes normalized, const std::optional<Tensor>& /*weight*/,
                        const std::optional<Tensor>& /*bias*/, double /*eps*/) {
  std::vector<int64_t> sizes = x.sizes().vec();
  std::fill(sizes.end() - static_cast<int64_t>(normalized.size()), sizes.end(), 1);
  return {at::empty_like(x), at::empty(sizes, x.options()), at::empty(sizes, x.options())};
}
inline Three layer_norm_backward(const Tensor& /*dy*/, const Tensor& x, Sizes /*normalized*/, const Tensor& /*mean*/,
                                 const Tensor& /*rstd*/, const std::optional<Tensor>& weight,
                                 const std::optional<Tensor>& bias, std::array<bool, 3> wanted) {
  return {wanted[0] ? at::empty_like(x) : Tensor(), wanted[1] ? at::empty_like(*weight) : Tensor(),
          wanted[2] ? at::empty_like(*bias) : Tensor()};
}
inline Tensor embedding_backward(const Tensor& dy, const Tensor& /*ids*/, c10::SymInt rows, c10::SymInt /*padding*/,
                                 bool /*by_frequency*/) {
  return at::empty({rows.expect_int(), dy.size(-1)}, dy.options());
}

inline Tensor convolution(const Tensor& x, const Tensor& w, const std::optional<Tensor>& /*bias*/, Sizes stride,
                          Sizes padding, Sizes dilation, bool /*transposed*/, Sizes /*output_padding*/,
                          c10::SymInt /*groups*/) {
  std::vector<int64_t> sizes = {x.size(0), w.size(0)};
  for (int64_t i = 2; i < x.dim(); ++i) {
    const auto at = static_cast<size_t>(i) - 2;
    const int64_t kernel = dilation[at].expect_int() * (w.size(i) - 1) + 1;
    sizes.push_back((x.size(i) + 2 * padding[at].expect_int() - kernel) / stride[at].expect_int() + 1);
  }
  return at::empty(sizes, x.options());
}
inline Three convolution_backward(const Tensor& /*dy*/, const Tensor& x, const Tensor& w, Sizes /*stride*/,
                                  Sizes /*padding*/, Sizes /*dilation*/, bool /*transposed*/, Sizes /*output_padding*/,
                                  c10::SymInt /*groups*/, std::array<bool, 3> wanted) {
  return {wanted[0] ? at::empty_like(x) : Tensor(), wanted[1] ? at::empty_like(w) : Tensor(),
          wanted[2] ? at::empty({w.size(0)}, w.options()) : Tensor()};
}

inline Three batch_norm(const Tensor& x, const std::optional<Tensor>& /*w*/, const std::optional<Tensor>& /*bias*/,
                        const std::optional<Tensor>& /*mean*/, const std::optional<Tensor>& /*variance*/,
                        bool /*training*/, double /*momentum*/, double /*eps*/) {
  const Tensor statistic = at::empty({x.size(1)}, x.options().dtype(at::kFloat));
  return {at::empty_like(x), statistic, at::empty_like(statistic)};
}
inline Three batch_norm_backward(const Tensor& /*dy*/, const Tensor& x, const std::optional<Tensor>& w,
                                 const std::optional<Tensor>& /*mean*/, const std::optional<Tensor>& /*variance*/,
                                 const std::optional<Tensor>& /*saved_mean*/,
                                 const std::optional<Tensor>& /*saved_rstd*/, bool /*training*/, double /*eps*/,
                                 std::array<bool, 3> wanted) {
  return {wanted[0] ? at::empty_like(x) : Tensor(), wanted[1] ? at::empty_like(*w) : Tensor(),
          wanted[2] ? at::empty_like(*w) : Tensor()};
}

inline Tensor segment_reduce(const Tensor& x, std::string_view /*how*/, const std::optional<Tensor>& /*lengths*/,
                             const std::optional<Tensor>& /*indices*/, const std::optional<Tensor>& begin,
                             int64_t /*axis*/, bool unsafe, const std::optional<at::Scalar>& /*initial*/) {
  TORCH_CHECK(unsafe, "a safe segment_reduce reads the segments on the host");
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.at(0) = begin.value().numel() - 1;
  return at::empty(sizes, x.options());
}

inline Tensor average_pool(const Tensor& x, Sizes sizes) {
  return at::empty({x.size(0), x.size(1), sizes[0].expect_int(), sizes[1].expect_int()}, x.options());
}
inline Tensor like_input(const Tensor& /*dy*/, const Tensor& x) { return at::empty_like(x); }

// Operators element by element: the result has the common shape of the tensors, and the dtype of the last one.
inline void elementwise(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  const auto values = torch::jit::last(*stack, arguments.size()).vec();
  Tensor like, result;
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i].isTensor()) continue;
    const auto* const alias = arguments[i].alias_info();
    if (alias != nullptr && alias->isWrite()) result = values[i].toTensor();
    if (arguments[i].is_out()) continue;
    like = values[i].toTensor();
    sizes = at::infer_size(sizes, like.sizes());
  }
  if (result.defined()) {
    result.resize_(sizes);
  } else {
    result = at::empty(sizes, like.options());
  }
  torch::jit::drop(*stack, arguments.size());
  torch::jit::push(*stack, result);
}

}  // namespace ddhost::test::shapes

TORCH_LIBRARY_IMPL(aten, Meta, m) {
  using namespace ddhost::test;
  m.impl("index_select", TORCH_FN(shapes::index_select));
  for (const char* name :
       {"relu", "relu_", "hardtanh", "hardtanh_", "hardtanh_backward", "hardswish", "hardswish_", "hardswish_backward",
        "where.self", "logical_not.out", "logical_and.out", "logical_or.out", "where.self_out", "abs.out"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&shapes::elementwise>());
  m.impl("native_layer_norm", TORCH_FN(shapes::layer_norm));
  m.impl("native_layer_norm_backward", TORCH_FN(shapes::layer_norm_backward));
  m.impl("embedding_dense_backward", TORCH_FN(shapes::embedding_backward));
  m.impl("segment_reduce", TORCH_FN(shapes::segment_reduce));
  m.impl("convolution_overrideable", TORCH_FN(shapes::convolution));
  m.impl("convolution_backward_overrideable", TORCH_FN(shapes::convolution_backward));
  m.impl("native_batch_norm", TORCH_FN(shapes::batch_norm));
  m.impl("native_batch_norm_backward", TORCH_FN(shapes::batch_norm_backward));
  m.impl("_adaptive_avg_pool2d", TORCH_FN(shapes::average_pool));
  m.impl("_adaptive_avg_pool2d_backward", TORCH_FN(shapes::like_input));
}
