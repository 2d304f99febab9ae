// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/grad_store.hpp: where a data-parallel strategy keeps gradients, from a unit's backward to the update.
#pragma once

#include "ddh/sdk/layout.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// Gradients are fp32. A `space` is an index in ModelLayout::spaces.
class GradStore {
 public:
  virtual ~GradStore() = default;

  // Bytes under DDH_TAG_GRAD that materialize takes on this rank.
  [[nodiscard]] virtual uint64_t bytes() const = 0;
  virtual void materialize(const Host& host) = 0;

  // Full-size memory for a unit's backward to write to. [collective]
  virtual float* writable(size_t space) = 0;
  // This rank has written all gradients of the space. `last`: in this step, so that their sum counts in the norm.
  virtual void ready(size_t space, bool last) = 0;
  // Sums over the ranks what is ready and not summed yet. [collective]
  virtual void reduce_all() = 0;

  // After reduce_all: the sums of what this rank updates, or nullptr where the step had no gradients.
  [[nodiscard]] virtual const float* sum(size_t space) = 0;
  // The sums were used.
  virtual void step_done() = 0;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
