// SPDX-License-Identifier: Apache-2.0
#include "sampler.hpp"
#include <ATen/ops/empty.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include "../ops/counter_rng.hpp"

namespace gpt {
namespace {

constexpr double kTemperature = 0.8;
constexpr int64_t kTopK = 40;

}  // namespace

void Sampler::begin(std::vector<int64_t> prompt, uint32_t length, uint64_t seed, const Config& config) {
  ids_ = std::move(prompt);
  if (ids_.empty()) ids_.push_back(0);
  context_ = config.context;
  remaining_ = length;
  seed_ = seed;
  draws_ = 0;
  waiting_ = false;
}

std::unique_ptr<GptBatch> Sampler::next() {
  if (remaining_ == 0) return nullptr;
  auto batch = std::make_unique<GptBatch>();
  const int64_t n = std::min(static_cast<int64_t>(ids_.size()), context_);
  batch->B = 1;
  batch->T = n;
  batch->samples = {0};
  batch->ids = at::empty({1, n}, at::kLong);
  batch->targets = at::zeros({1, n}, at::kLong);
  batch->counted_targets = n;
  std::copy(ids_.end() - n, ids_.end(), batch->ids.mutable_data_ptr<int64_t>());
  --remaining_;
  waiting_ = true;
  return batch;
}

void Sampler::see(const at::Tensor& logits) {
  if (!waiting_) return;
  waiting_ = false;
  ids_.push_back(draw(logits.select(0, logits.size(0) - 1)));
}

int64_t Sampler::draw(const at::Tensor& logits) {
  const auto [values, indices] = logits.topk(std::min(kTopK, logits.size(0)));
  const at::Tensor p = at::softmax(values.to(at::kDouble).div(kTemperature), 0);
  double left = ops::draw_uniform(seed_, draws_++);
  for (int64_t i = 0; i < p.size(0); ++i) {
    left -= p.const_data_ptr<double>()[i];
    if (left <= 0) return indices.const_data_ptr<int64_t>()[i];
  }
  return indices.const_data_ptr<int64_t>()[0];
}

}  // namespace gpt
