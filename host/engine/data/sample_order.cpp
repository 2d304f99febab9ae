// SPDX-License-Identifier: Apache-2.0
#include "engine/data/sample_order.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "ddh/sdk/counter_rng.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

std::vector<int64_t> read_order(const std::string& path, uint64_t n_samples) {
  std::ifstream in(path, std::ios::binary);
  if (!in) ddh::fail(DDH_NOT_FOUND, "cannot open the sample order '", path, "' (data.order): ", std::strerror(errno));
  const uint64_t bytes = std::filesystem::file_size(path);
  if (bytes == 0 || bytes % sizeof(int64_t) != 0) {
    ddh::fail(DDH_DATA_LOSS, "the sample order '", path, "' has ", bytes,
              " bytes; it must hold int64 sample indices, 8 bytes each");
  }
  std::vector<int64_t> order(bytes / sizeof(int64_t));
  if (!in.read(reinterpret_cast<char*>(order.data()), static_cast<std::streamsize>(bytes)))
    ddh::fail(DDH_DATA_LOSS, "the sample order '", path, "' can't be read to its end; was it changed meanwhile?");
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] < 0 || static_cast<uint64_t>(order[i]) >= n_samples) {
      ddh::fail(DDH_OUT_OF_RANGE, "entry ", i, " of the sample order '", path, "' is ", order[i], "; samples are 0 to ",
                n_samples - 1);
    }
  }
  return order;
}

}  // namespace

Permutation::Permutation(uint64_t n, uint64_t seed, uint64_t epoch)
    : n_(n), half_bits_((static_cast<uint32_t>(std::bit_width(n > 1 ? n - 1 : 1)) + 1) / 2) {
  const ddh::CounterRng rng(seed, "sample order");
  for (uint64_t k = 0; k < 4; ++k) keys_[k] = rng.bits(epoch * 4 + k);
}

uint64_t Permutation::shuffle_bits(uint64_t x) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = x >> half_bits_, right = x & mask;
  for (const uint64_t key : keys_) {
    const uint64_t mixed = left ^ (ddh::mix64(right ^ key) & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

uint64_t Permutation::operator()(uint64_t i) const {
  uint64_t x = shuffle_bits(i);
  while (x >= n_) x = shuffle_bits(x);
  return x;
}

SampleOrder::SampleOrder(uint64_t n_samples, uint64_t seed, SampleCut cut, const std::string& order_file, EpochEnd end)
    : n_samples_(n_samples), seed_(seed), cut_(cut), end_(end) {
  if (n_samples == 0) ddh::fail(DDH_INVALID_ARGUMENT, "the data has no samples; give more data");
  if (end != EpochEnd::shorten && n_samples < cut.micro_batch * cut.world_size) {
    ddh::fail(DDH_INVALID_ARGUMENT, "the data has ", n_samples, " samples, but ", cut.world_size, " ranks take ",
              cut.micro_batch, " each in a micro-batch; use fewer ranks, a smaller data.micro_batch or more data");
  }
  if (!order_file.empty()) order_ = read_order(order_file, n_samples);
  if (end == EpochEnd::drop && epoch_size() < cut.per_step()) {
    ddh::fail(DDH_INVALID_ARGUMENT, "an epoch has ", epoch_size(), " samples, a step takes ", cut.per_step(),
              ", so data.drop_last=true leaves nothing; use fewer ranks, a smaller data.micro_batch or more data");
  }
}

int64_t SampleOrder::at(uint64_t position) const {
  if (!order_.empty()) return order_[position % order_.size()];
  return static_cast<int64_t>(Permutation(n_samples_, seed_, position / n_samples_)(position % n_samples_));
}

uint64_t SampleOrder::steps_in(uint64_t samples) const {
  const uint64_t whole = samples / cut_.per_step(), rest = samples % cut_.per_step();
  return whole + (end_ == EpochEnd::shorten && rest > 0 ? 1 : 0);
}

void SampleOrder::start_after(int64_t steps, uint64_t samples) {
  steps_before_ = static_cast<uint64_t>(steps);
  samples_before_ = samples;
}

SampleOrder::Place SampleOrder::place(int64_t step) const {
  const uint64_t before = static_cast<uint64_t>(step - 1) - steps_before_;
  if (end_ == EpochEnd::join) return {samples_before_ + before * cut_.per_step(), cut_.per_step()};
  // The epoch that is under way comes first; where nothing was taken yet, it is a whole one.
  const uint64_t in_first = steps_in(epoch_size() - samples_before_ % epoch_size());
  const bool is_in_first = before < in_first;
  const uint64_t later = is_in_first ? 0 : before - in_first, per_epoch = steps_in(epoch_size());
  const uint64_t epoch = samples_before_ / epoch_size() + (is_in_first ? 0 : 1 + later / per_epoch);
  const uint64_t done = is_in_first ? samples_before_ % epoch_size() + before * cut_.per_step()
                                    : later % per_epoch * cut_.per_step();  // samples of this epoch
  return {epoch * epoch_size() + done, std::min(cut_.per_step(), epoch_size() - done)};
}

std::vector<int64_t> SampleOrder::samples(int64_t step, uint64_t micro_batch, uint64_t rank) const {
  const Place whole = place(step);
  const uint64_t begin = std::min((micro_batch * cut_.world_size + rank) * cut_.micro_batch, whole.count);
  std::vector<int64_t> out(std::min(cut_.micro_batch, whole.count - begin));
  for (uint64_t i = 0; i < out.size(); ++i) out[i] = at(whole.first + begin + i);
  return out;
}

bool SampleOrder::has_empty(int64_t last_step) const {
  if (end_ != EpochEnd::shorten) return false;
  // The last steps of the epoch that is under way and of the next one; those of later epochs are alike.
  const uint64_t first_end = steps_before_ + steps_in(epoch_size() - samples_before_ % epoch_size());
  for (const uint64_t step : {first_end, first_end + steps_in(epoch_size())}) {
    const bool is_reached = static_cast<uint64_t>(last_step) >= step;
    if (is_reached && place(static_cast<int64_t>(step)).count + cut_.micro_batch <= cut_.per_step()) return true;
  }
  return false;
}

}  // namespace ddhost
