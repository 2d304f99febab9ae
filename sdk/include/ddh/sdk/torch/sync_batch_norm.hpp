// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/torch/sync_batch_norm.hpp: batch norm by the statistics of a micro-batch of all ranks together. Every rank gathers
// the sums of every sample and adds them in the order of the samples over all ranks. So statistics have the same bits however
// the same samples are spread over ranks.
#pragma once

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "ddh/sdk/collective.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// The samples of each rank in a micro-batch.
class SampleSpread {
 public:
  SampleSpread(const Host& host, std::vector<int64_t> samples) : host_(host), samples_(std::move(samples)) {
    call(host.comm->group_info, host.h, nullptr, &rank_, nullptr, nullptr);
  }
  // A collective of all ranks.
  static std::vector<int64_t> gathered(const Host& host, int64_t own) {
    int32_t world = 1;
    call(host.comm->group_info, host.h, nullptr, nullptr, &world, nullptr);
    std::vector<int64_t> samples(static_cast<size_t>(world), own);
    const SampleSpread spread(host, samples);
    if (world > 1) spread.gather(&own, samples.data(), DDH_I64, std::vector<uint64_t>(samples.size(), 1));
    return samples;
  }
  [[nodiscard]] bool is_first_rank() const { return rank_ == 0; }
  // (own samples, C) fp64 of each rank, in the order of ranks -> (samples of all ranks, C).
  [[nodiscard]] at::Tensor all(const at::Tensor& own) const {
    if (samples_.size() == 1) return own;
    const int64_t rows = std::accumulate(samples_.begin(), samples_.end(), int64_t{0});
    at::Tensor out = at::empty({rows, own.size(1)}, at::kDouble);
    std::vector<uint64_t> counts;
    for (const int64_t n : samples_) counts.push_back(static_cast<uint64_t>(n * own.size(1)));
    gather(own.const_data_ptr<double>(), out.mutable_data_ptr<double>(), DDH_F64, counts);
    return out;
  }

 private:
  void gather(const void* own, void* all, int32_t dtype, const std::vector<uint64_t>& counts) const {
    ddh_coll c = collective(dtype, "batch norm");
    c.send = own, c.recv = all;
    c.count = counts[static_cast<size_t>(rank_)];
    c.counts = counts.data();
    call(host_.comm->all_gather, host_.h, &c);
  }

  const Host& host_;
  int32_t rank_ = 0;
  const std::vector<int64_t> samples_;  // of each rank
};

// Of each channel over all samples: fp64 (C).
struct BatchStatistics {
  at::Tensor mean, squares;  // sum of squared distances from the mean
  double count = 0;          // values of a channel
};

// (N, C, values of a channel) fp32 -> (N, C) fp64
inline at::Tensor sums_of_samples(const at::Tensor& x) {
  const std::array<int64_t, 1> values = {2};
  return x.sum(values, /*keepdim=*/false, at::kDouble);
}

// x (N, C, ...) of this rank. Collective.
inline BatchStatistics batch_statistics(const SampleSpread& spread, const at::Tensor& x) {
  const at::Tensor rows = x.detach().to(at::kFloat).reshape({x.size(0), x.size(1), -1});
  const auto per_sample = static_cast<double>(rows.size(2));
  const at::Tensor means = sums_of_samples(rows).div(per_sample);
  const at::Tensor distances = sums_of_samples(rows.sub(means.to(at::kFloat).unsqueeze(2)).square());
  const at::Tensor all_means = spread.all(means.contiguous()), all_distances = spread.all(distances.contiguous());
  BatchStatistics s{at::zeros({x.size(1)}, at::kDouble), at::zeros({x.size(1)}, at::kDouble), 0};
  for (int64_t n = 0; n < all_means.size(0); ++n) {  // Chan et al. 1979
    const at::Tensor away = all_means[n].sub(s.mean);
    const double count = s.count + per_sample;
    s.squares.add_(all_distances[n]).add_(away.square(), s.count * per_sample / count);
    s.mean.add_(away, per_sample / count);
    s.count = count;
  }
  return s;
}

// y = (x - mean) / sqrt(variance + eps) * weight + bias; its backward sums over all ranks too.
struct SyncBatchNorm : torch::autograd::Function<SyncBatchNorm> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, const at::Tensor& mean, const at::Tensor& variance, double eps,
                            double count, const Host& host, const std::vector<int64_t>& samples) {
    ctx->save_for_backward({x, weight, mean, variance});
    ctx->saved_data["eps"] = eps;
    ctx->saved_data["count"] = count;
    ctx->saved_data["host"] = reinterpret_cast<int64_t>(&host);  // outlives every graph
    ctx->saved_data["samples"] = samples;
    return at::batch_norm(x, weight, bias, mean, variance, false, 0, eps, false);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const torch::autograd::variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const SampleSpread spread(*reinterpret_cast<const Host*>(ctx->saved_data["host"].toInt()),
                              ctx->saved_data["samples"].toIntVector());
    const at::Tensor scale = saved[3].add(ctx->saved_data["eps"].toDouble()).rsqrt();
    std::vector<int64_t> across(static_cast<size_t>(x.dim()), 1);
    across[1] = x.size(1);
    const auto of_channel = [&](const at::Tensor& t) { return t.view(across); };
    const at::Tensor dy = gradients[0].to(at::kFloat);
    const at::Tensor normal = x.to(at::kFloat).sub(of_channel(saved[2])).mul(of_channel(scale));
    const auto sums = [&](const at::Tensor& t) {  // (N, C) fp64
      return sums_of_samples(t.reshape({t.size(0), t.size(1), -1})).contiguous();
    };
    const at::Tensor own_dy = sums(dy), own_product = sums(dy.mul(normal));
    const auto mean_of = [&](const at::Tensor& own) {  // over all samples, in their order
      const at::Tensor all = spread.all(own);
      at::Tensor sum = at::zeros({own.size(1)}, at::kDouble);
      for (int64_t n = 0; n < all.size(0); ++n) sum.add_(all[n]);
      return sum.div(ctx->saved_data["count"].toDouble()).to(at::kFloat);
    };
    const at::Tensor mean_dy = mean_of(own_dy), mean_product = mean_of(own_product);
    const at::Tensor dx = dy.sub(of_channel(mean_dy))
                              .sub(normal.mul(of_channel(mean_product)))
                              .mul(of_channel(scale.mul(weight.to(at::kFloat))));
    torch::autograd::variable_list out(9);  // one for each argument of forward
    out[0] = dx.to(x.scalar_type());
    const std::array<int64_t, 1> samples = {0};
    out[1] = own_product.sum(samples).to(at::kFloat);
    out[2] = own_dy.sum(samples).to(at::kFloat);
    return out;
  }
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
