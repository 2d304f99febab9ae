// SPDX-License-Identifier: Apache-2.0
#include "engine/samples/sample_order.hpp"

#include <algorithm>
#include <cstring>

#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/kernels/counter_rng.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

std::vector<int64_t> read_order(const std::string& path, uint64_t n_samples) {
  const std::string content = ddh::read_input(path, {"the sample order", "give a file of int64 indices as data.order"});
  const uint64_t bytes = content.size();
  if (bytes == 0 || bytes % sizeof(int64_t) != 0) {
    ddh::fail(DDH_DATA_LOSS, "the sample order '", path, "' has ", bytes,
              " bytes; it must hold int64 sample indices, 8 bytes each");
  }
  std::vector<int64_t> order(bytes / sizeof(int64_t));
  std::memcpy(order.data(), content.data(), bytes);
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] < 0 || static_cast<uint64_t>(order[i]) >= n_samples) {
      ddh::fail(DDH_OUT_OF_RANGE, "entry ", i, " of the sample order '", path, "' is ", order[i], "; samples are 0 to ",
                n_samples - 1);
    }
  }
  return order;
}

}  // namespace

Permutation::Permutation(uint64_t n, uint64_t seed, uint64_t epoch, FeistelShape shape) : n_(n), shape_(shape) {
  const ddh::CounterRng rng(seed, "sample order");
  for (uint64_t k = 0; k < shape_.rounds; ++k) keys_.at(k) = rng.bits(epoch * shape_.rounds + k);
}

uint64_t Permutation::shuffle_bits(uint64_t x) const {
  const uint64_t mask = (uint64_t{1} << shape_.half_bits) - 1;
  uint64_t left = x >> shape_.half_bits, right = x & mask;
  for (uint32_t k = 0; k < shape_.rounds; ++k) {
    const uint64_t mixed = left ^ (ddh::mix64(right ^ keys_[k]) & mask);
    left = right;
    right = mixed;
  }
  return left << shape_.half_bits | right;
}

uint64_t Permutation::operator()(uint64_t i) const {
  uint64_t x = shuffle_bits(i);
  while (x >= n_) x = shuffle_bits(x);
  return x;
}

SampleOrder::SampleOrder(uint64_t n_samples, uint64_t seed, const std::string& order_file, EpochEnd end)
    : SampleOrder(n_samples, seed, end, epoch_shape(n_samples)) {
  if (!order_file.empty()) order_ = read_order(order_file, n_samples);
}

SampleOrder::SampleOrder(uint64_t n_samples, uint64_t seed, EpochEnd end, FeistelShape shape)
    : n_samples_(n_samples), seed_(seed), end_(end), shape_(shape) {
  if (n_samples == 0) ddh::fail(DDH_INVALID_ARGUMENT, "the data has no samples; give more data");
}

void SampleOrder::require(const SampleCut& cut) const {
  if (end_ != EpochEnd::shorten && n_samples_ < cut.micro_batch * cut.world_size) {
    ddh::fail(DDH_INVALID_ARGUMENT, "the data has ", n_samples_, " samples, but ", cut.world_size, " ranks take ",
              cut.micro_batch, " each in a micro-batch; use fewer ranks, a smaller data.micro_batch or more data");
  }
  if (end_ == EpochEnd::drop && epoch_size() < cut.per_step()) {
    ddh::fail(DDH_INVALID_ARGUMENT, "an epoch has ", epoch_size(), " samples, but a step takes ", cut.per_step(),
              ", so data.drop_last=true drops all of them; use fewer ranks, a smaller data.micro_batch or more data");
  }
}

int64_t SampleOrder::at(uint64_t position) const {
  if (!order_.empty()) return order_[position % order_.size()];
  return static_cast<int64_t>(Permutation(n_samples_, seed_, position / n_samples_, shape_)(position % n_samples_));
}

uint64_t SampleOrder::next_position(uint64_t position, const SampleCut& cut) const {
  const uint64_t left = epoch_size() - position % epoch_size();  // of this epoch
  return end_ == EpochEnd::drop && left < cut.per_step() ? position + left : position;
}

SampleSpan SampleOrder::take(uint64_t& position, const SampleCut& cut) const {
  SampleSpan span{next_position(position, cut), cut.per_step()};
  if (end_ != EpochEnd::join) span.count = std::min(span.count, epoch_size() - span.first % epoch_size());
  position = span.first + span.count;
  return span;
}

int64_t SampleOrder::steps_until(uint64_t position, uint64_t end, const SampleCut& cut) const {
  if (position >= end) return 0;
  const uint64_t left = end - position, per_step = cut.per_step();
  if (end_ == EpochEnd::join) return static_cast<int64_t>((left + per_step - 1) / per_step);
  const auto steps_in = [&](uint64_t samples) {
    return samples / per_step + (end_ == EpochEnd::shorten && samples % per_step > 0 ? 1 : 0);
  };
  const uint64_t of_this_epoch = std::min(next_epoch(position) - position, left);
  return static_cast<int64_t>(steps_in(of_this_epoch) + (left - of_this_epoch) / epoch_size() * steps_in(epoch_size()));
}

std::vector<int64_t> SampleOrder::samples(const SampleSpan& step, const SampleCut& cut, uint64_t micro_batch,
                                          uint64_t rank) const {
  const SampleSpan part = part_of(step, cut, micro_batch, rank);
  std::vector<int64_t> out(part.count);
  for (uint64_t i = 0; i < out.size(); ++i) out[i] = at(part.first + i);
  return out;
}

void SampleOrder::fill(BatchSamples& out, const SampleSpan& step, const SampleCut& cut, uint64_t micro_batch,
                       uint64_t rank) const {
  const SampleSpan part = part_of(step, cut, micro_batch, rank);
  out.samples.clear();
  out.epochs.clear();
  for (uint64_t place = part.first; place < part.first + part.count; ++place) {
    out.samples.push_back(at(place));
    out.epochs.push_back(static_cast<int64_t>(place / epoch_size()));
  }
}

SampleSpan SampleOrder::part_of(const SampleSpan& step, const SampleCut& cut, uint64_t micro_batch, uint64_t rank) {
  const uint64_t begin = std::min((micro_batch * cut.world_size + rank) * cut.micro_batch, step.count);
  return {step.first + begin, std::min(cut.micro_batch, step.count - begin)};
}

}  // namespace ddhost
