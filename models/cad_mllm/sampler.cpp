// SPDX-License-Identifier: Apache-2.0
#include "sampler.hpp"

#include <ATen/ops/full.h>

#include <algorithm>

#include "text.hpp"

namespace cad {

void Sampler::begin(const Config& config, int32_t stage, const std::string& prompt, Item item, Inputs has,
                    const ddh_sample_args& args) {
  drawer_ = ops::Drawer(args);
  stage_ = stage;
  item_ = std::move(item);
  has_ = has;
  ids_.clear();
  append_bytes(ids_, prompt);
  const auto n = static_cast<int64_t>(ids_.size());
  if (n >= config.max_tokens)
    ddh::fail(DDH_INVALID_ARGUMENT, "the prompt has ", n, " tokens, which leaves none to generate within ",
              config.max_tokens, "; shorten it, or raise model.max_tokens");
  remaining_ = std::min<int64_t>(args.length, config.max_tokens - n);
}

std::optional<CadBatch> Sampler::next(const Config& config) {
  if (remaining_ == 0 || ids_.back() == kEnd) return std::nullopt;
  --remaining_;
  BatchMaker maker(config, stage_);
  maker.add({ids_, 0}, item_, has_);
  CadBatch batch = maker.made();
  // The last row alone is wanted, and it has no target.
  batch.rows = at::full({1}, maker.prefix() + batch.T - 1, at::kLong);
  batch.targets = at::full({1}, kNoTarget, at::kLong);
  batch.sample_of_row = {0};
  batch.n_targets = 0;
  batch.is_of_sampler = true;
  return batch;
}

void Sampler::see(const at::Tensor& logits) { ids_.push_back(drawer_.draw(logits.select(0, 0))); }

}  // namespace cad
