// SPDX-License-Identifier: Apache-2.0
//
// engine/data/train_order.hpp: the program that a step trains, and its samples. Programs take turns, one per step. Each
// iterates over its own samples, independent of the others.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "engine/data/sample_order.hpp"

namespace ddhost {

class TrainOrder {
 public:
  // `turns`: programs in the order of their steps, repeated cyclically; each has its own sample order.
  TrainOrder(std::vector<int32_t> turns, std::map<int32_t, SampleOrder> orders)
      : turns_(std::move(turns)), orders_(std::move(orders)) {}

  [[nodiscard]] const std::vector<int32_t>& turns() const { return turns_; }
  [[nodiscard]] const SampleOrder& of(int32_t program) const { return orders_.at(program); }
  // The steps of a program among the first `steps` of the run.
  [[nodiscard]] int64_t own_steps(int32_t program, int64_t steps) const {
    const auto n_turns = static_cast<int64_t>(turns_.size());
    return steps / n_turns * std::count(turns_.begin(), turns_.end(), program) +
           std::count(turns_.begin(), turns_.begin() + steps % n_turns, program);
  }
  // Steps count from 1.
  [[nodiscard]] int32_t program(int64_t step) const { return turns_[turn(step)]; }
  [[nodiscard]] std::vector<int64_t> samples(int64_t step, uint64_t micro_batch, uint64_t rank) const {
    return orders_.at(program(step)).samples(own_step(step), micro_batch, rank);
  }
  // Samples of all ranks and micro-batches.
  [[nodiscard]] uint64_t count(int64_t step) const { return orders_.at(program(step)).count(own_step(step)); }
  // A program of which some rank has a micro-batch without samples up to `last_step`, or -1.
  [[nodiscard]] int32_t program_with_empty(int64_t last_step) const {
    for (int64_t step = last_step; step > std::max<int64_t>(0, last_step - static_cast<int64_t>(turns_.size())); --step)
      if (orders_.at(program(step)).has_empty(own_step(step))) return program(step);
    return -1;
  }

 private:
  [[nodiscard]] size_t turn(int64_t step) const { return static_cast<size_t>(step - 1) % turns_.size(); }
  // The number of steps of this program so far, including this one.
  [[nodiscard]] int64_t own_step(int64_t step) const {
    const auto rounds = (step - 1) / static_cast<int64_t>(turns_.size());
    const auto end = turns_.begin() + static_cast<std::ptrdiff_t>(turn(step)) + 1;
    return rounds * std::count(turns_.begin(), turns_.end(), program(step)) +
           std::count(turns_.begin(), end, program(step));
  }

  const std::vector<int32_t> turns_;
  const std::map<int32_t, SampleOrder> orders_;
};

}  // namespace ddhost
