// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/grads/grad_store.hpp: how a data-parallel strategy stores gradients, from a unit's backward to the update.
#pragma once

#include "ddh/sdk/params/layout.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// Gradients are fp32. A `space` is an index in ModelLayout::spaces.
class GradStore {
 public:
  virtual ~GradStore() = default;

  // Bytes under DDH_TAG_GRAD that materialize allocates on this rank.
  [[nodiscard]] virtual uint64_t bytes() const = 0;
  // Of these: in pinned memory.
  [[nodiscard]] virtual uint64_t pinned_bytes() const { return 0; }
  // Bytes under DDH_TAG_COMM that it allocates.
  [[nodiscard]] virtual uint64_t comm_bytes() const { return 0; }
  // What this rank sends in a step of the run's first program.
  [[nodiscard]] virtual SentBytes sent_bytes() const = 0;
  // Calls that sum a space once, if it is not coded.
  [[nodiscard]] virtual uint32_t calls_per_reduction(size_t /*space*/) const { return 1; }
  // Calls that sum, beside the reductions of the spaces that are not coded.
  [[nodiscard]] virtual uint32_t reduce_calls() const { return 0; }
  virtual void materialize(const Host& host) = 0;

  virtual void step_begin(int64_t /*step*/) {}
  // Full-size memory for a unit's backward to write to, after FlatSpace::blocks_numel. [collective]
  virtual float* writable(size_t space) = 0;
  // This rank has written all gradients of the space. `last`: they are the last ones of this step, so their sum counts
  // in the norm.
  virtual void ready(size_t space, bool last) = 0;
  // After a unit's backward, for a space with gradients in blocks: the block that was given before is written; gives
  // the next one. Returns false if there are no more. Then `ready` follows. [collective]
  virtual bool next_block(size_t /*space*/, bool /*last*/, ddh_grad_block& /*out*/) { return false; }
  // Sums all gradients that are ready and not summed yet over the ranks. [collective]
  virtual void reduce_all() = 0;

  // After reduce_all: the sums for this rank's update, or nullptr if the step had no gradients.
  [[nodiscard]] virtual const float* sum(size_t space) = 0;
  // Whether `sum` has all elements of a space, and not this rank's segment alone.
  [[nodiscard]] virtual bool sums_are_whole() const { return false; }
  // The sums were used.
  virtual void step_done() = 0;

  // Frees memory of a space that no later step trains. [collective]
  virtual void free(size_t space) = 0;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
