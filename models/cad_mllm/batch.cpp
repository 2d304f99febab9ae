// SPDX-License-Identifier: Apache-2.0
#include "batch.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>

#include "text.hpp"

namespace cad {
namespace {

at::Tensor floats(const std::vector<float>& values, at::IntArrayRef shape) {
  at::Tensor out = at::empty(shape, at::kFloat);
  std::copy(values.begin(), values.end(), out.mutable_data_ptr<float>());
  return out;
}

at::Tensor integers(const std::vector<int64_t>& values) {
  at::Tensor out = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), out.mutable_data_ptr<int64_t>());
  return out;
}

// `values`, or as many zeros.
void append(std::vector<float>& to, const std::vector<float>& values, bool has, int64_t numel) {
  if (has && !values.empty()) {
    to.insert(to.end(), values.begin(), values.end());
  } else {
    to.resize(to.size() + static_cast<size_t>(numel), 0.0F);
  }
}

}  // namespace

int64_t CadBatch::bytes() const {
  int64_t sum = 0;
  for (const at::Tensor* t : {&ids, &pixels, &points, &rows, &targets})
    sum += t->defined() ? static_cast<int64_t>(t->nbytes()) : 0;
  return sum;
}

Sequence sequence_of(const Config& config, const std::string& prompt, const std::string& target) {
  Sequence s;
  append_bytes(s.ids, prompt);
  s.first_target = config.masks_prompt ? static_cast<int64_t>(s.ids.size()) : 0;
  append_bytes(s.ids, target);
  s.ids.push_back(kEnd);
  if (static_cast<int64_t>(s.ids.size()) > config.max_tokens)
    ddh::fail(DDH_INVALID_ARGUMENT, "a sample has ", s.ids.size(), " tokens of prompt, target and end mark, more than ",
              config.max_tokens, "; raise model.max_tokens");
  return s;
}

void BatchMaker::add(Sequence sequence, const Item& item, Inputs has) {
  sequences_.push_back(std::move(sequence));
  if (inputs_.image) append(pixels_, item.pixels, has.image, config_.image.numel());
  if (inputs_.points) append(points_, item.points, has.points, config_.point.numel());
}

CadBatch BatchMaker::made() const {
  CadBatch batch;
  batch.B = static_cast<int64_t>(sequences_.size());
  for (const Sequence& s : sequences_) batch.T = std::max(batch.T, static_cast<int64_t>(s.ids.size()));
  batch.ids = at::full({batch.B, batch.T}, kPad, at::kLong);
  std::vector<int64_t> rows, targets;
  const int64_t tokens = prefix() + batch.T;
  for (int64_t b = 0; b < batch.B; ++b) {
    const Sequence& s = sequences_[static_cast<size_t>(b)];
    std::copy(s.ids.begin(), s.ids.end(), batch.ids.mutable_data_ptr<int64_t>() + b * batch.T);
    // A token is predicted by the row before it; the very first token has none.
    for (int64_t t = std::max<int64_t>(s.first_target, prefix() > 0 ? 0 : 1); t < static_cast<int64_t>(s.ids.size());
         ++t) {
      rows.push_back(b * tokens + prefix() + t - 1);
      targets.push_back(s.ids[static_cast<size_t>(t)]);
      batch.sample_of_row.push_back(b);
    }
    batch.n_tokens += prefix() + static_cast<int64_t>(s.ids.size());
  }
  batch.rows = integers(rows);
  batch.targets = integers(targets);
  batch.n_targets = static_cast<int64_t>(targets.size());
  if (inputs_.image)
    batch.pixels = floats(pixels_, {batch.B * config_.image.views, 3, config_.image.side, config_.image.side});
  if (inputs_.points) batch.points = floats(points_, {batch.B, config_.point.points, 6});
  return batch;
}

}  // namespace cad
