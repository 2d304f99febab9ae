// SPDX-License-Identifier: Apache-2.0
//
// Counter-based dropout over arrays.
#include "ddh/sdk/dropout.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

Dropout::Dropout(double probability, const DropoutKey& key)
    : scale_(static_cast<float>(1 / (1 - probability))),
      threshold_(static_cast<uint32_t>(probability * 0x1p32)),
      stream_(stream_of(key)) {}

float Dropout::factor(uint64_t element) const {
  return static_cast<uint32_t>(stream_.bits(element) >> 32) < threshold_ ? 0.0F : scale_;
}

void Dropout::apply(float* x, uint64_t first, uint64_t numel) const {
  for (uint64_t i = 0; i < numel; ++i) {
    const float f = factor(first + i);
    x[i] = f == 0 ? 0.0F : x[i] * f;
  }
}

void Dropout::fill(float* factors, uint64_t first, uint64_t numel) const {
  for (uint64_t i = 0; i < numel; ++i) factors[i] = factor(first + i);
}

CounterRng Dropout::stream_of(const DropoutKey& key) {
  uint64_t stream = key.seed;
  for (const uint64_t part : {static_cast<uint64_t>(key.step), static_cast<uint64_t>(key.global_micro_batch),
                              static_cast<uint64_t>(key.position), key.site})
    stream = CounterRng(stream, "dropout").bits(part);
  return {stream, "dropout"};
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
