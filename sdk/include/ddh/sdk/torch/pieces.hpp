// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/torch/pieces.hpp: parallel work on LibTorch's threads with results that do not depend on their number. An
// operator of ATen that runs on several threads may split a sum, or the vectors of an element-wise function, by their
// number. Here work is split only by its size, and one thread computes each piece, including the operators that it
// calls.
//
// The threads are OpenMP's: compile with -fopenmp, else pieces run one after another, with the same bits.
#pragma once

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstdint>

#include "ddh/sdk/torch/activations.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// Calls body(i) for i from 0 to n - 1, in any order. No two calls may write the same data.
template <class Body>
void for_pieces(int64_t n, const Body& body) {
  const Host* host = ActivationScope::counted_host();
  const bool inference = c10::InferenceMode::is_enabled();
  at::parallel_for(0, n, 1, [&](int64_t first, int64_t end) {
    const ActivationScope::Joined counted(host);
    const c10::InferenceMode no_autograd(inference);
    for (int64_t i = first; i < end; ++i) body(i);
  });
}

// Calls body(first, count) for ranges that cover 0 .. numel - 1, for element-wise operators of ATen. These process the
// last elements of a call one by one, with other bits than in vectors, so ranges have whole vectors.
template <class Body>
void for_ranges(int64_t numel, const Body& body) {
  constexpr int64_t kVectors = 128;       // elements: two vectors of any width and dtype
  constexpr int64_t kLeastNumel = 32768;  // smallest range for a thread
  const int64_t blocks = (numel + kVectors - 1) / kVectors;
  const Host* host = ActivationScope::counted_host();
  const bool inference = c10::InferenceMode::is_enabled();
  at::parallel_for(0, blocks, kLeastNumel / kVectors, [&](int64_t first, int64_t end) {
    const ActivationScope::Joined counted(host);
    const c10::InferenceMode no_autograd(inference);
    body(first * kVectors, std::min(end * kVectors, numel) - first * kVectors);
  });
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
