// SPDX-License-Identifier: Apache-2.0
#include "batch_norm.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "rows.hpp"

namespace ops {
namespace {

// The rows of x, whose channels are side by side.
struct Rows {
  explicit Rows(const at::Tensor& x) : channels(x.size(1)), n(x.numel() / std::max<int64_t>(1, channels)) {}
  int64_t channels, n;
};

float* floats(const at::Tensor& x) { return x.mutable_data_ptr<float>(); }

// scale = weight / sqrt(variance + eps), from 1 / sqrt(variance + eps).
at::Tensor scale_of(const at::Tensor& weight, const at::Tensor& rstd) {
  at::Tensor scale = at::empty_like(rstd);
  const auto *w = weight.const_data_ptr<float>(), *r = rstd.const_data_ptr<float>();
  for (int64_t c = 0; c < scale.numel(); ++c) floats(scale)[c] = w[c] * r[c];
  return scale;
}

ChannelScalars scalars_of(const at::Tensor& mean, const at::Tensor& scale, const at::Tensor& bias) {
  return {mean.const_data_ptr<float>(), scale.const_data_ptr<float>(), bias.const_data_ptr<float>()};
}

at::Tensor apply_norm(const at::Tensor& x, const ChannelScalars& of, Activation activation) {
  at::Tensor y = at::empty_like(x);
  const Rows rows(x);
  with_elements(x, [&]<class Element>(const Element* from) {
    normalize(from, mutable_elements<Element>(y), rows.n, rows.channels, of, activation);
  });
  return y;
}

struct FusedNorm : torch::autograd::Function<FusedNorm> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, const at::Tensor& mean, const at::Tensor& rstd,
                            Activation activation) {
    ctx->save_for_backward({x, weight, bias, mean, rstd});
    ctx->saved_data["activation"] = static_cast<int64_t>(activation);
    const at::Tensor scale = scale_of(weight, rstd);
    return apply_norm(x, scalars_of(mean, scale, bias), activation);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const torch::autograd::variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &mean = saved[3], &rstd = saved[4], scale = scale_of(saved[1], rstd);
    const auto activation = static_cast<Activation>(ctx->saved_data["activation"].toInt());
    const at::Tensor dy = by_pixels(gradients[0]);
    const ChannelScalars of = scalars_of(mean, scale, saved[2]);
    const Rows rows(x);
    const auto C = static_cast<size_t>(rows.channels);
    std::vector<double> sums(C), products(C);
    std::vector<float> mean_g(C), slope(C);
    at::Tensor dx, d_weight = at::empty_like(mean), d_bias = at::empty_like(mean);
    const bool wants_input = ctx->needs_input_grad(0);
    if (wants_input) dx = at::empty_like(x);
    with_elements(x, [&]<class Element>(const Element* from) {
      const auto* const d = elements<Element>(dy);
      normalize_backward_sums(from, d, rows.n, rows.channels, of, activation, sums.data(), products.data());
      const auto n = static_cast<double>(rows.n);
      for (size_t c = 0; c < C; ++c) {
        const auto r = static_cast<double>(rstd.const_data_ptr<float>()[c]);
        floats(d_weight)[c] = static_cast<float>(products[c] * r);
        floats(d_bias)[c] = static_cast<float>(sums[c]);
        mean_g[c] = static_cast<float>(sums[c] / n);
        slope[c] = static_cast<float>(products[c] * r * r / n);
      }
      if (wants_input)
        normalize_backward(from, d, mutable_elements<Element>(dx), rows.n, rows.channels, of, activation, mean_g.data(),
                           slope.data());
    });
    return {dx, d_weight, d_bias, {}, {}, {}};
  }
};

}  // namespace

NormedBatch batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                       Activation activation) {
  const at::Tensor in = by_pixels(x);
  const Rows rows(in);
  const auto C = static_cast<size_t>(rows.channels);
  std::vector<double> means(C), squares(C);
  with_elements(
      in, [&](const auto* from) { channel_statistics(from, rows.n, rows.channels, means.data(), squares.data()); });
  NormedBatch out;
  out.mean = at::empty({x.size(1)}, at::kFloat);
  out.variance = at::empty_like(out.mean);
  at::Tensor rstd = at::empty_like(out.mean);
  const auto n = static_cast<double>(rows.n);
  for (size_t c = 0; c < C; ++c) {
    floats(out.mean)[c] = static_cast<float>(means[c]);
    floats(out.variance)[c] = static_cast<float>(squares[c] / std::max(1.0, n - 1));
    floats(rstd)[c] = static_cast<float>(1 / std::sqrt(squares[c] / n + eps));
  }
  out.y = FusedNorm::apply(in, weight, bias, out.mean, rstd, activation);
  return out;
}

at::Tensor normalized(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& variance, const at::Tensor& weight,
                      const at::Tensor& bias, double eps, Activation activation) {
  if (at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad() || bias.requires_grad()))
    ddh::fail(DDH_INTERNAL, "a batch norm by given statistics has no gradient, but its input or weight is trained");
  at::Tensor scale = at::empty_like(mean);
  for (int64_t c = 0; c < scale.numel(); ++c)
    floats(scale)[c] = static_cast<float>(static_cast<double>(weight.const_data_ptr<float>()[c]) /
                                          std::sqrt(static_cast<double>(variance.const_data_ptr<float>()[c]) + eps));
  return apply_norm(by_pixels(x), scalars_of(mean, scale, bias), activation);
}

}  // namespace ops
