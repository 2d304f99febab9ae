// SPDX-License-Identifier: Apache-2.0
#include "sampler.hpp"
#include <ATen/ops/empty.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include "ddh/sdk/counter_rng.hpp"

namespace gpt {
void Sampler::begin(std::vector<int64_t> prompt, const ddh_sample_args& args, const Config& config) {
  if (!(args.temperature >= 0) || args.top_k < 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "sampling takes a temperature and a top_k of 0 or more, not ", args.temperature,
              " and ", args.top_k);
  ids_ = std::move(prompt);
  if (ids_.empty()) ids_.push_back(0);
  context_ = config.context;
  remaining_ = args.length;
  seed_ = args.seed;
  temperature_ = args.temperature;
  top_k_ = args.top_k;
  draws_ = 0;
  waiting_ = false;
}

std::unique_ptr<GptBatch> Sampler::next() {
  if (remaining_ == 0) return nullptr;
  auto batch = std::make_unique<GptBatch>();
  const int64_t n = std::min(static_cast<int64_t>(ids_.size()), context_);
  batch->B = 1;
  batch->T = n;
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
  const int64_t V = logits.size(0);
  if (temperature_ == 0) return logits.argmax().item<int64_t>();
  const auto [values, indices] = logits.topk(top_k_ > 0 ? std::min(top_k_, V) : V);
  // Subtract the largest before the division: with a small temperature the others become -inf and the largest stays 0.
  const at::Tensor below = values.to(at::kDouble).sub(values.select(0, 0).to(at::kDouble));
  const at::Tensor p = at::softmax(below.div(temperature_), 0);
  double left = ddh::CounterRng(seed_, "sample").uniform(draws_++);
  for (int64_t i = 0; i < p.size(0); ++i) {
    left -= p.const_data_ptr<double>()[i];
    if (left <= 0) return indices.const_data_ptr<int64_t>()[i];
  }
  return indices.const_data_ptr<int64_t>()[0];
}

}  // namespace gpt
