// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/grads/ring_choice.hpp: how many buffers a GradRing has, and which spaces are too large for it.
#pragma once

#include "ddh/sdk/grads/grad_ring.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

struct RingChoice {
  size_t n_own = 0;      // the first candidates have their own buffers; the others use the ring
  size_t ring_size = 0;  // buffers of the size of the first candidate that uses the ring
};

// `candidates`: the spaces that may use the ring, the largest first. If the ring for all of them, with the buffer that
// lets communication overlap, fits into options.buffer_bytes, that is the choice. Else it is the one with the least
// bytes on all `world_size` ranks together. `in_place`: a space with its own buffer needs no segment. The numbers of all
// ranks count, so that all ranks choose the same.
[[nodiscard]] RingChoice choose_ring(const ModelLayout& layout, const std::vector<size_t>& candidates,
                                     int32_t world_size, bool in_place, const GradRingOptions& options);

}  // namespace DDH_HIDDEN
}  // namespace ddh
