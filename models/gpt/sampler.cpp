// SPDX-License-Identifier: Apache-2.0
#include "sampler.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace gpt {

void Sampler::begin(std::vector<int64_t> prompt, int64_t start, const ddh_sample_args& args, const Config& config) {
  drawer_ = ops::Drawer(args);
  ids_ = std::move(prompt);
  n_hidden_ = ids_.empty() ? 1 : 0;
  if (ids_.empty()) ids_.push_back(start);
  context_ = config.context;
  remaining_ = args.length;
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
  ids_.push_back(drawer_.draw(logits.select(0, logits.size(0) - 1)));
}

}  // namespace gpt
