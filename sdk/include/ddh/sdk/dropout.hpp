// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/dropout.hpp: dropout by counter. Whether an element is dropped depends on its place in the run alone: seed, step,
// the micro-batch's place among those of all ranks, position in the program, site within the unit, element. So masks depend
// neither on the number of ranks nor on the strategy, and a recomputed forward and the backward have the same ones.
#pragma once

#include <cstdint>

#include "ddh/sdk/counter_rng.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

struct DropoutKey {
  uint64_t seed = 0;               // run.seed
  int64_t step = 0;                // ddh_unit_call.step
  int64_t global_micro_batch = 0;  // ddh_unit_call.global_micro_batch
  int64_t position = 0;            // ddh_unit_call.position
  uint64_t site = 0;               // which of the dropouts of a unit
};

class Dropout {
 public:
  // Drops with `probability`, in [0, 1); what is kept is multiplied by 1 / (1 - probability).
  Dropout(double probability, const DropoutKey& key);

  // 0, or the factor of what is kept.
  [[nodiscard]] float factor(uint64_t element) const;
  // x[i] *= factor(first + i); what is dropped becomes 0 whatever it was.
  void apply(float* x, uint64_t first, uint64_t numel) const;
  void fill(float* factors, uint64_t first, uint64_t numel) const;

 private:
  static CounterRng stream_of(const DropoutKey& key);
  const float scale_;
  const uint32_t threshold_;
  const CounterRng stream_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
