// SPDX-License-Identifier: Apache-2.0
//
// engine/data/sample_order.hpp: the samples of each rank and micro-batch. They depend only on (seed, position), so a
// step has the same samples after a resume and at another world size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddhost {

// A permutation of 0 .. n-1 that is evaluated at single points: four rounds of a Feistel network over the next even
// number of bits, walked until the result is below n (Black and Rogaway 2002).
class Permutation {
 public:
  Permutation(uint64_t n, uint64_t seed, uint64_t epoch);
  [[nodiscard]] uint64_t operator()(uint64_t i) const;

 private:
  [[nodiscard]] uint64_t shuffle_bits(uint64_t x) const;
  uint64_t n_;
  uint32_t half_bits_;
  uint64_t keys_[4];
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

class SampleOrder {
 public:
  // `order_file`: a file of int64 little-endian sample indices to use instead of the permutation, or "". Throws
  // ddh::Error if there are fewer samples than one micro-batch of all ranks (drop: one step; shorten: one sample), or
  // the file is damaged, empty or out of range.
  SampleOrder(uint64_t n_samples, uint64_t seed, SampleCut cut, const std::string& order_file,
              EpochEnd end = EpochEnd::join);

  [[nodiscard]] const SampleCut& cut() const { return cut_; }

  // Step `steps` + 1 begins at place `samples` of the sequence of all epochs: a run goes on that took its steps so far with
  // this cut or another. Only steps after `steps` are asked for from then on.
  void start_after(int64_t steps, uint64_t samples);
  // Where the samples of step `steps` + 1 begin, if no step before was another.
  [[nodiscard]] uint64_t begin_after(int64_t steps) const { return place(steps + 1).first; }
  [[nodiscard]] uint64_t epoch_samples() const { return epoch_size(); }

  // The samples of one rank in one micro-batch; step counts from 1, micro_batch from 0.
  [[nodiscard]] std::vector<int64_t> samples(int64_t step, uint64_t micro_batch, uint64_t rank) const;
  // The samples of all ranks and micro-batches in a step.
  [[nodiscard]] uint64_t count(int64_t step) const { return place(step).count; }
  // Whether a rank has a micro-batch without samples in a step up to `last_step`.
  [[nodiscard]] bool has_empty(int64_t last_step) const;

 private:
  struct Place {
    uint64_t first, count;  // in the sequence of all epochs
  };
  [[nodiscard]] Place place(int64_t step) const;
  [[nodiscard]] uint64_t epoch_size() const { return order_.empty() ? n_samples_ : order_.size(); }
  [[nodiscard]] uint64_t steps_in(uint64_t samples) const;  // that the rest of an epoch gives
  [[nodiscard]] int64_t at(uint64_t position) const;
  uint64_t n_samples_;
  uint64_t seed_;
  SampleCut cut_;
  EpochEnd end_;
  uint64_t steps_before_ = 0, samples_before_ = 0;  // of start_after
  std::vector<int64_t> order_;
};

}  // namespace ddhost
