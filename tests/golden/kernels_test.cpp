// SPDX-License-Identifier: Apache-2.0
//
// Kernels of models on processors against LibTorch's operators: batch norms with the activation after them, depthwise
// convolutions, linear layers, root mean square norms, rotary positions.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/hardtanh.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <vector>

#include "../../models/ops/autograd_layers.hpp"
#include "../../models/ops/batch_norm.hpp"
#include "../../models/ops/depthwise.hpp"
#include "../../models/ops/exponential.hpp"
#include "../../models/ops/language_layers.hpp"
#include "check.hpp"
#include "fixtures/harness/golden_fill.hpp"

using namespace ddhost::test;

namespace {

constexpr at::MemoryFormat kByPixels = at::MemoryFormat::ChannelsLast;

at::Tensor filled(const std::string& name, at::IntArrayRef sizes, double shift = 0) {
  at::Tensor out = at::empty(sizes, at::kFloat);
  const std::vector<float> values = golden_uni(name, static_cast<size_t>(out.numel()), 1.0);
  std::copy(values.begin(), values.end(), out.mutable_data_ptr<float>());
  return out.add_(shift);
}

at::Tensor leaf(const at::Tensor& x) { return x.detach().clone().set_requires_grad(true); }

at::Tensor activated(ops::Activation kind, const at::Tensor& x) {
  switch (kind) {
    case ops::Activation::kRelu:
      return at::relu(x);
    case ops::Activation::kRelu6:
      return at::hardtanh(x, 0, 6);
    case ops::Activation::kHardSwish:
      return at::hardswish(x);
    case ops::Activation::kSilu:
      return at::silu(x);
    default:
      return x;
  }
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return x.sub(y).norm().item<double>() / (y.norm().item<double>() + 1e-30);
}

}  // namespace

TEST_CASE("a batch norm with its activation has the values, gradients and statistics of LibTorch's in fp64") {
  const auto activation = GENERATE(ops::Activation::kNone, ops::Activation::kRelu, ops::Activation::kRelu6,
                                   ops::Activation::kHardSwish, ops::Activation::kSilu);
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  const std::vector<int64_t> sizes = GENERATE(std::vector<int64_t>{3, 5, 7, 6}, std::vector<int64_t>{4, 160, 5, 5},
                                              std::vector<int64_t>{2, 72, 1, 1}, std::vector<int64_t>{130, 67});
  const double shift = GENERATE(0.0, 50.0);  // a mean of many deviations
  const bool has_two_values = sizes.size() == 4 && sizes[2] == 1;
  if (shift != 0 && (type == at::kBFloat16 || has_two_values)) return;  // rounding of the values is all that is left
  CAPTURE(static_cast<int>(activation), type, sizes, shift);
  const int64_t C = sizes[1];
  const at::Tensor in = filled("x", sizes, shift).to(type);
  const at::Tensor x = leaf(sizes.size() == 4 ? in.contiguous(kByPixels) : in), w = leaf(filled("w", {C}, 1.5)),
                   b = leaf(filled("b", {C}, 0.5));
  const at::Tensor dy = filled("dy", sizes).to(type);
  const ops::NormedBatch normed = ops::batch_norm(x, w, b, 1e-5, activation);
  normed.y.backward(dy);

  const at::Tensor x_64 = leaf(in.to(at::kDouble)), w_64 = leaf(w.to(at::kDouble)), b_64 = leaf(b.to(at::kDouble));
  const at::Tensor mean = at::zeros({C}, at::kDouble), variance = at::zeros({C}, at::kDouble);
  const at::Tensor expected =
      activated(activation, at::batch_norm(x_64, w_64, b_64, mean, variance, true, /*momentum*/ 1.0, 1e-5, false));
  expected.backward(dy.to(at::kDouble));

  const double near = type == at::kBFloat16 ? 4e-3 : shift != 0 ? 2e-5 : 1e-6;
  CHECK(distance(normed.mean, mean) < 1e-6);
  CHECK(distance(normed.variance, variance) < 1e-5);
  CHECK(distance(normed.y, expected) < near);
  CHECK(normed.y.scalar_type() == type);
  CHECK(distance(w.grad(), w_64.grad()) < 10 * near);
  CHECK(distance(b.grad(), b_64.grad()) < near);
  // Over few values most of dx is what two terms leave over. Where a value lies on a bend, its slope may be either side's.
  if (!has_two_values) CHECK(distance(x.grad(), x_64.grad()) < 20 * near);

  const at::NoGradGuard no_graph;
  const at::Tensor by_given = ops::normalized(x, mean.to(at::kFloat), variance.to(at::kFloat), w, b, 1e-5, activation);
  CHECK(distance(by_given, activated(activation, at::batch_norm(x_64, w_64, b_64, mean, variance, false, 1.0, 1e-5,
                                                                false))) < near);
}

TEST_CASE("a batch norm with its activation hands on NaN and infinity as LibTorch's do") {
  using Limits = std::numeric_limits<float>;
  const auto activation = GENERATE(ops::Activation::kNone, ops::Activation::kRelu, ops::Activation::kRelu6,
                                   ops::Activation::kHardSwish, ops::Activation::kSilu);
  const float odd = GENERATE(Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN());
  CAPTURE(static_cast<int>(activation), odd);
  at::Tensor x = filled("x", {6, 20});
  x.mutable_data_ptr<float>()[43] = odd;
  const at::Tensor w = filled("w", {20}, 1.5), b = filled("b", {20}, 0.5), zero = at::zeros({20}), one = zero.add(1);
  const auto same_kinds = [](const at::Tensor& ours, const at::Tensor& theirs) {
    return ours.isnan().equal(theirs.isnan()) && ours.isinf().equal(theirs.isinf());
  };
  const at::NoGradGuard no_graph;
  CHECK(same_kinds(ops::normalized(x, zero, one, w, b, 1e-5, activation),
                   activated(activation, at::batch_norm(x, w, b, zero, one, false, 0.1, 1e-5, false))));
  CHECK(same_kinds(ops::batch_norm(x, w, b, 1e-5, activation).y,
                   activated(activation, at::batch_norm(x, w, b, {}, {}, true, 0.1, 1e-5, false))));
}

TEST_CASE("a batch norm by given statistics refuses a trained weight, whose gradient it does not have") {
  const at::Tensor x = filled("x", {4, 3}), w = leaf(filled("w", {3})), b = filled("b", {3}),
                   one = at::zeros({3}).add(1);
  CHECK_THROWS_WITH(ops::normalized(x, b, one, w, b, 1e-5, ops::Activation::kNone), Catch::Contains("has no gradient"));
}

TEST_CASE("a linear layer by a library of products has the values and gradients of LibTorch's in fp64") {
  const std::string library = GENERATE("aten", "onednn", "onednn_gemm");
  const bool has_bias = GENERATE(true, false), trains_weight = GENERATE(true, false), trains_x = GENERATE(true, false);
  const int64_t rows = GENERATE(0, 6);
  const std::unique_ptr<ops::Products> products = ops::make_products(library, DDH_F32);
  if (products == nullptr) return;  // built without oneDNN
  CAPTURE(library, has_bias, trains_weight, trains_x, rows);
  const at::Tensor x = filled("x", {rows / 2, 2, 24}).set_requires_grad(trains_x),
                   w = filled("w", {40, 24}).set_requires_grad(trains_weight), b = leaf(filled("b", {40}));
  const at::Tensor y = ops::autograd::linear(*products, x, w, has_bias ? std::optional(b) : std::nullopt);
  const at::Tensor x_64 = leaf(x.to(at::kDouble)), w_64 = leaf(w.to(at::kDouble)), b_64 = leaf(b.to(at::kDouble));
  const at::Tensor expected = at::linear(x_64, w_64, has_bias ? std::optional(b_64) : std::nullopt);
  REQUIRE(y.sizes() == expected.sizes());
  CHECK(distance(y, expected) < 1e-6);
  if (!has_bias && !trains_weight && !trains_x) return;
  const at::Tensor dy = filled("dy", {40}).expand(y.sizes());  // not contiguous
  y.backward(dy);
  expected.backward(dy.to(at::kDouble));
  CHECK(x.grad().defined() == trains_x);
  CHECK(w.grad().defined() == trains_weight);
  if (trains_x) CHECK(distance(x.grad(), x_64.grad()) < 1e-6);
  if (trains_weight) CHECK(distance(w.grad(), w_64.grad()) < 1e-6);
  if (has_bias) CHECK(distance(b.grad(), b_64.grad()) < 1e-6);
}

TEST_CASE("depthwise convolutions have the values and gradients of LibTorch's in fp64") {
  const int64_t kernel = GENERATE(1, 3, 5), stride = GENERATE(1, 2, 3), C = GENERATE(3, 23, 48);
  const int64_t padding = GENERATE(0, 1, 2);
  const auto [height, width] =
      GENERATE(std::pair<int64_t, int64_t>{9, 6}, std::pair<int64_t, int64_t>{1, 1}, std::pair<int64_t, int64_t>{2, 5});
  if (padding > kernel / 2 || height + 2 * padding < kernel || width + 2 * padding < kernel) return;
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  CAPTURE(kernel, stride, padding, C, height, width, type);
  const at::Tensor in = filled("x", {2, C, height, width}).to(type),
                   weight = filled("w", {C, 1, kernel, kernel}).to(type);
  const at::Tensor x = leaf(in.contiguous(kByPixels)), w = leaf(weight);
  REQUIRE(ops::fits_depthwise(x, w, C));
  const at::Tensor y = ops::depthwise(x, w, stride, padding);
  const at::Tensor x_64 = leaf(in.to(at::kDouble)), w_64 = leaf(weight.to(at::kDouble));
  const std::vector<int64_t> strides = {stride, stride}, paddings = {padding, padding}, dilation = {1, 1};
  const at::Tensor expected = at::conv2d(x_64, w_64, {}, strides, paddings, dilation, C);
  REQUIRE(y.sizes() == expected.sizes());
  const at::Tensor dy = filled("dy", expected.sizes()).to(type);
  y.backward(dy);
  expected.backward(dy.to(at::kDouble));
  const double near = type == at::kBFloat16 ? 4e-3 : 1e-6;
  CHECK(distance(y, expected) < near);
  CHECK(distance(x.grad(), x_64.grad()) < near);
  CHECK(distance(w.grad(), w_64.grad()) < near);
}

TEST_CASE("a layer is not taken for a depthwise convolution where channels are mixed or not side by side") {
  const at::Tensor x = filled("x", {2, 8, 4, 4}).contiguous(kByPixels);
  CHECK(ops::fits_depthwise(x, at::zeros({8, 1, 3, 3}), 8));
  CHECK_FALSE(ops::fits_depthwise(x, at::zeros({8, 8, 3, 3}), 1));
  CHECK_FALSE(ops::fits_depthwise(x, at::zeros({16, 1, 3, 3}), 8));
  CHECK_FALSE(ops::fits_depthwise(x, at::zeros({8, 4, 3, 3}), 2));
  CHECK_FALSE(ops::fits_depthwise(x, at::zeros({8, 1, 7, 7}), 8));
  CHECK_FALSE(ops::fits_depthwise(x, at::zeros({8, 1, 3, 5}), 8));
  CHECK_FALSE(ops::fits_depthwise(x.contiguous(), at::zeros({8, 1, 3, 3}), 8));
  CHECK_FALSE(ops::fits_depthwise(x.to(at::kDouble), at::zeros({8, 1, 3, 3}), 8));
}

TEST_CASE("a root mean square norm has the values and the input's gradient of its formula in fp64") {
  const int64_t width = GENERATE(1, 15, 16, 22, 128), heads = GENERATE(1, 3);
  CAPTURE(width, heads);
  const at::Tensor in = filled("x", {2, 5, heads, width}), w = filled("w", {width}, 1.5);
  const at::Tensor x = leaf(in), x_64 = leaf(in.to(at::kDouble)), dy = filled("dy", in.sizes());
  const at::Tensor y = ops::autograd::rms_norm(x, w, 1e-6);
  const at::Tensor expected =
      x_64.mul(x_64.square().mean(-1, /*keepdim=*/true).add(1e-6).rsqrt()).mul(w.to(at::kDouble));
  y.backward(dy);
  expected.backward(dy.to(at::kDouble));
  CHECK(distance(y, expected) < 1e-6);
  CHECK(x.grad().sub(x_64.grad()).abs().max().item<double>() < 1e-5);  // of one element alone it is nearly 0
  const at::Tensor trained = leaf(w);
  ops::autograd::rms_norm(x, trained, 1e-6).backward(dy);  // by operators, since the kernel has no gradient of a weight
  const at::Tensor of_weight = dy.mul(x.detach()).mul(x.detach().square().mean(-1, true).add(1e-6).rsqrt());
  CHECK(distance(trained.grad(), of_weight.sum(at::IntArrayRef{0, 1, 2})) < 1e-5);
}

TEST_CASE("rotary positions turn each pair by its angle, and gradients back") {
  const int64_t width = GENERATE(2, 10, 64), heads = 3, T = 5, half = width / 2;
  CAPTURE(width);
  const at::Tensor in = filled("x", {2, T, heads, width}), angle = filled("angle", {T, half}, 1.0);
  const at::Tensor angles = at::cat({angle, angle}, 1), cos = angles.cos(), sin = angles.sin();
  const at::Tensor x = leaf(in), x_64 = leaf(in.to(at::kDouble)), dy = filled("dy", in.sizes());
  const at::Tensor y = ops::autograd::rotated(x, cos, sin);
  const at::Tensor c = cos.to(at::kDouble).unsqueeze(1), d = sin.to(at::kDouble).unsqueeze(1);
  const at::Tensor swapped = at::cat({x_64.narrow(-1, half, half).neg(), x_64.narrow(-1, 0, half)}, -1);
  const at::Tensor expected = x_64.mul(c).add(swapped.mul(d));
  y.backward(dy);
  expected.backward(dy.to(at::kDouble));
  CHECK(distance(y, expected) < 1e-6);
  CHECK(distance(x.grad(), x_64.grad()) < 1e-6);
}

TEST_CASE("exponential is exp within 2 units in the last place, with infinity, 0 and NaN at its ends") {
  double largest = 0;
  for (float x = -87.3F; x < 88.7F; x += 0.0137F) {
    const double expected = std::exp(static_cast<double>(x));
    largest = std::max(largest, std::abs(static_cast<double>(ops::exponential(x)) - expected) / expected);
  }
  CHECK(largest < 2 * 0x1p-23);
  double between = 0;
  for (float x = -87.3F; x < 88.0F; x += 0.0137F)
    between = std::max(
        between,
        std::abs(static_cast<double>(ops::exponential_below(x)) / static_cast<double>(ops::exponential(x)) - 1));
  CHECK(between < 2 * 0x1p-23);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  CHECK(ops::exponential(0.0F) == 1.0F);
  CHECK(ops::exponential(89.0F) == kInfinity);
  CHECK(ops::exponential(kInfinity) == kInfinity);
  CHECK(ops::exponential(-kInfinity) == 0.0F);
  CHECK(ops::exponential(-100.0F) == 0.0F);
  CHECK(std::isnan(ops::exponential(std::numeric_limits<float>::quiet_NaN())));
  CHECK(ops::exponential_below(0.0F) == 1.0F);
  CHECK(ops::exponential_below(-kInfinity) == 0.0F);
  CHECK(ops::exponential_below(-87.4F) == 0.0F);
  CHECK(ops::exponential_below(-87.33F) > 0.0F);
  CHECK(std::isnan(ops::exponential_below(std::numeric_limits<float>::quiet_NaN())));
  CHECK(ops::logistic(0.0F) == 0.5F);
  CHECK(ops::logistic(-kInfinity) == 0.0F);
  CHECK(ops::logistic(kInfinity) == 1.0F);
}
