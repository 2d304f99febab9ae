// SPDX-License-Identifier: Apache-2.0
//
// engine/samples/sample_order.hpp: the samples of each rank and micro-batch. They depend only on (seed, position), so a
// step has the same samples after a resume and at another world size.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace ddhost {

// The number of the way in which epochs are permuted, for checkpoints. Those saved before it was counted have way 1: four
// rounds for sets of every size.
inline constexpr int32_t kSampleOrderWay = 2;
// Of a permutation: rounds over 2 half_bits.
struct FeistelShape {
  uint32_t half_bits, rounds;
};
inline constexpr uint32_t kMostRounds = 24;
// Four rounds over as few bits as n samples need.
constexpr FeistelShape short_shape(uint64_t n) {
  return {(static_cast<uint32_t>(std::bit_width(n > 1 ? n - 1 : 1)) + 1) / 2, 4};
}
// Of epochs. Sets of up to kSmallSet samples take more rounds, over 6 bits or more, because no number of rounds over 4 bits
// makes all orders equally likely. docs/numerics.md has the measurement.
inline constexpr uint64_t kSmallSet = 1024;
constexpr FeistelShape epoch_shape(uint64_t n) {
  if (n > kSmallSet) return short_shape(n);
  return {std::max(short_shape(n).half_bits, 3U), kMostRounds};
}

// A permutation of 0 .. n-1 that is evaluated at single points: rounds of a Feistel network over the next even number of
// bits, walked until the result is below n (Black and Rogaway 2002).
class Permutation {
 public:
  Permutation(uint64_t n, uint64_t seed, uint64_t epoch, FeistelShape shape);
  [[nodiscard]] uint64_t operator()(uint64_t i) const;

 private:
  [[nodiscard]] uint64_t shuffle_bits(uint64_t x) const;
  uint64_t n_;
  FeistelShape shape_;
  std::array<uint64_t, kMostRounds> keys_{};  // one for each round
};

struct SampleCut {
  uint64_t micro_batch = 1;  // samples per rank and micro-batch
  uint64_t world_size = 1;
  uint64_t grad_accum_steps = 1;
  [[nodiscard]] uint64_t per_step() const { return micro_batch * world_size * grad_accum_steps; }
};

// The handling of samples after the last full step of an epoch.
enum class EpochEnd {
  join,    // a step may contain the end of one epoch and the start of the next
  drop,    // the rest of the epoch is left out
  shorten  // a smaller step: first full micro-batches, then a partial one, then empty ones
};

// Consecutive places in the sequence of all epochs.
struct SampleSpan {
  uint64_t first = 0, count = 0;
};

// The samples of a batch.
struct BatchSamples {
  std::vector<int64_t> samples, epochs;  // the epoch of each sample, from 0
};

// The samples of one program, epoch after epoch. The position of a run in this sequence is stored separately
// (TrainPosition), so that the cut may change during a run.
class SampleOrder {
 public:
  // `order_file`: a file of int64 little-endian sample indices to use instead of the permutation, or "". Throws
  // ddh::Error if there are no samples, or the file is damaged, empty or out of range.
  SampleOrder(uint64_t n_samples, uint64_t seed, const std::string& order_file, EpochEnd end = EpochEnd::join);
  // With permutations of another shape than epoch_shape.
  SampleOrder(uint64_t n_samples, uint64_t seed, EpochEnd end, FeistelShape shape);

  // Throws ddh::Error if there are fewer samples than one micro-batch of all ranks (drop: one step of them).
  void require(const SampleCut& cut) const;

  // Where the next step begins: at `position`, or later if the rest of an epoch is dropped.
  [[nodiscard]] uint64_t next_position(uint64_t position, const SampleCut& cut) const;
  // The samples of the next step. Advances `position` past them.
  [[nodiscard]] SampleSpan take(uint64_t& position, const SampleCut& cut) const;
  // The samples of one rank in one micro-batch (from 0) of a step.
  [[nodiscard]] std::vector<int64_t> samples(const SampleSpan& step, const SampleCut& cut, uint64_t micro_batch,
                                             uint64_t rank) const;
  // The same, with their epochs.
  void fill(BatchSamples& out, const SampleSpan& step, const SampleCut& cut, uint64_t micro_batch, uint64_t rank) const;
  // The steps from `position` until `end`, which is a whole number of epochs. With joined epochs the last step may reach
  // into the next one.
  [[nodiscard]] int64_t steps_until(uint64_t position, uint64_t end, const SampleCut& cut) const;
  [[nodiscard]] uint64_t epoch_size() const { return order_.empty() ? n_samples_ : order_.size(); }
  // The first position at or after `position` where an epoch begins.
  [[nodiscard]] uint64_t next_epoch(uint64_t position) const {
    return (position + epoch_size() - 1) / epoch_size() * epoch_size();
  }

 private:
  // The places of one rank in one micro-batch of a step.
  static SampleSpan part_of(const SampleSpan& step, const SampleCut& cut, uint64_t micro_batch, uint64_t rank);
  [[nodiscard]] int64_t at(uint64_t position) const;
  uint64_t n_samples_;
  uint64_t seed_;
  EpochEnd end_;
  FeistelShape shape_;
  std::vector<int64_t> order_;
};

}  // namespace ddhost
