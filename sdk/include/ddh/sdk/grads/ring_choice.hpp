// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/grads/ring_choice.hpp: how many buffers a GradRing has, and which spaces are too large for it.
#pragma once

#include "ddh/sdk/grads/grad_ring.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

struct RingChoice {
  size_t n_own = 0;                // the first candidates have their own buffers; the others use the ring
  size_t ring_size = 0;            // its buffers
  uint64_t ring_numel = 0;         // of a buffer: the first candidate that uses the ring, or a batch if that is larger
  uint64_t bytes_for_overlap = 0;  // what the ring would need; 0: it has the buffer for overlap
};

// `candidates`: the spaces that may use the ring, the largest first. If the ring for all of them, with the buffer for
// overlap, fits into options.buffer_bytes, that is the choice. Else it is the number of own buffers with which all ranks
// together need the least bytes without overlap; the buffer for overlap is added if it fits, and if the ranks then need no
// more than FullGrads. `in_place`: a space with its own buffer needs no segment. All ranks choose the same, because the
// bytes of all ranks count. `blocks`: what is always in the ring.
struct RingBlocks {
  std::vector<size_t> spaces;  // one for each buffer that is written after the backward of the space's unit
  uint64_t numel = 0;          // of the largest of these buffers
};
[[nodiscard]] RingChoice choose_ring(const ModelLayout& layout, const std::vector<size_t>& candidates,
                                     const RingBlocks& blocks, const ddh_attach_args& args, bool in_place,
                                     const GradRingOptions& options);

}  // namespace DDH_HIDDEN
}  // namespace ddh
