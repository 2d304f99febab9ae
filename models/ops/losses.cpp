// SPDX-License-Identifier: Apache-2.0
#include "losses.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cmath>

#include "ddh/sdk/torch/device.hpp"

namespace ops {

namespace {

at::Tensor one(double value) { return at::scalar_tensor(value, at::kDouble); }

at::Tensor cross_entropy_by_operators(const at::Tensor& logits, const at::Tensor& targets, at::Tensor& log_sum_exp) {
  const at::Tensor x = logits.to(at::kDouble), t = targets.to(at::kDouble);
  const at::Tensor rows = at::logsumexp(x, 1);
  log_sum_exp = rows.to(at::kFloat);
  const at::Tensor of_target = t.mul(x).masked_fill(t.eq(0), 0).sum(1);  // 0 * infinity is no number
  return t.sum(1).mul(rows).sub(of_target).sum();
}

}  // namespace

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets, at::Tensor& log_sum_exp) {
  if (ddh::by_operators(logits)) return cross_entropy_by_operators(logits, targets, log_sum_exp);
  const int64_t B = logits.size(0), K = logits.size(1);
  log_sum_exp = at::empty({B}, at::kFloat);
  const auto *x = logits.const_data_ptr<float>(), *t = targets.const_data_ptr<float>();
  auto* lse = log_sum_exp.mutable_data_ptr<float>();
  double loss = 0;
  for (int64_t b = 0; b < B; ++b, x += K, t += K) {
    const double largest = static_cast<double>(*std::max_element(x, x + K));
    double sum = 0, of_target = 0, weight = 0;
    for (int64_t k = 0; k < K; ++k) {
      sum += std::exp(static_cast<double>(x[k]) - largest);
      weight += static_cast<double>(t[k]);
      if (t[k] != 0) of_target += static_cast<double>(t[k]) * static_cast<double>(x[k]);  // 0 * infinity is no number
    }
    const double row = largest + std::log(sum);
    lse[b] = static_cast<float>(row);
    loss += weight * row - of_target;
  }
  return one(loss);
}

at::Tensor cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& log_sum_exp,
                                  double seed) {
  if (ddh::by_operators(logits)) {
    const at::Tensor p = logits.sub(log_sum_exp.unsqueeze(1)).exp_().to(at::kDouble);
    return p.mul(targets.to(at::kDouble).sum(1, /*keepdim=*/true)).sub_(targets).mul_(seed).to(at::kFloat);
  }
  const int64_t B = logits.size(0), K = logits.size(1);
  at::Tensor out = at::empty_like(logits);
  const auto *x = logits.const_data_ptr<float>(), *t = targets.const_data_ptr<float>();
  const auto* lse = log_sum_exp.const_data_ptr<float>();
  auto* d = out.mutable_data_ptr<float>();
  for (int64_t b = 0; b < B; ++b) {
    double weight = 0;
    for (int64_t k = b * K; k < (b + 1) * K; ++k) weight += static_cast<double>(t[k]);
    for (int64_t k = b * K; k < (b + 1) * K; ++k)
      d[k] = static_cast<float>((weight * static_cast<double>(std::exp(x[k] - lse[b])) - static_cast<double>(t[k])) *
                                seed);
  }
  return out;
}

int64_t count_among_largest(const at::Tensor& logits, const std::vector<int64_t>& labels, int64_t k) {
  const int64_t K = logits.size(1);
  const auto* x = logits.const_data_ptr<float>();
  int64_t counted = 0;
  for (const int64_t label : labels) {
    int64_t before = 0;  // NaN is before all
    for (int64_t j = 0; j < K; ++j) before += j < label ? !(x[j] < x[label]) : j > label && !(x[j] <= x[label]);
    counted += before < k && !std::isnan(x[label]) ? 1 : 0;
    x += K;
  }
  return counted;
}

at::Tensor counted_among_largest(const at::Tensor& logits, const at::Tensor& labels, int64_t k) {
  const at::Tensor label = labels.unsqueeze(1), x = logits.gather(1, label);  // (B, 1)
  const at::Tensor classes = at::arange(logits.size(1), labels.options()).unsqueeze(0);
  const at::Tensor before = classes.lt(label).logical_and(logits.lt(x).logical_not());
  const at::Tensor behind = classes.gt(label).logical_and(logits.le(x).logical_not());
  const at::Tensor n = before.logical_or(behind).sum(1);
  return n.lt(k).logical_and(x.eq(x).squeeze(1)).sum(at::kDouble);
}

at::Tensor counts_of_classes(const at::Tensor& logits, const at::Tensor& labels) {
  const at::Tensor classes = at::arange(logits.size(1), labels.options()).unsqueeze(0);
  // NaN is the largest, but does not equal itself.
  const at::Tensor given = logits.argmax(1, /*keepdim=*/true).eq(classes).logical_and(logits.eq(logits));  // (B, K)
  const at::Tensor found = given.logical_and(labels.unsqueeze(1).eq(classes));
  return at::cat({found.sum(0, /*keepdim=*/false, at::kDouble), given.sum(0, /*keepdim=*/false, at::kDouble)});
}

}  // namespace ops
