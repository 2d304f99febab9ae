// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/checksum.hpp: a 64-bit checksum of a block of bytes, at memory bandwidth. It detects damage, but not an
// attack. It is the same on every machine and at every vector width.
//
// 64 lanes of 32 bits each take every 64th word: lane = (lane ^ word) * odd; lane ^= lane >> 15. Every step is one to
// one, so a change of a single word always changes its lane; the shift brings high bits down, so that no two flips of
// a sign cancel. In the end the lanes are folded into 64 bits, together with the length.
#pragma once

#include <bit>
#include <cstring>

#include "ddh/sdk/simd.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

namespace detail {

// The compiler's vector types: vectorized at every level of optimization.
struct ChecksumLanes {
  using Vector = uint32_t __attribute__((vector_size(64)));
  static constexpr size_t kVectors = 4;
  static constexpr size_t kBlockBytes = sizeof(Vector) * kVectors;

  // Whole blocks of kBlockBytes; `lanes` are read and written.
  DDH_SIMD_BODY void run(uint32_t* lanes, const std::byte* data, uint64_t blocks) {
    Vector acc[kVectors];
    std::memcpy(acc, lanes, sizeof acc);
    for (uint64_t b = 0; b < blocks; ++b, data += kBlockBytes) {
      for (size_t v = 0; v < kVectors; ++v) {
        Vector words;
        std::memcpy(&words, data + v * sizeof(Vector), sizeof words);
        acc[v] = (acc[v] ^ words) * 0x9E3779B1U;
        acc[v] ^= acc[v] >> 15;
      }
    }
    std::memcpy(lanes, acc, sizeof acc);
  }
};

}  // namespace detail

uint64_t checksum64(const void* data, uint64_t bytes);

}  // namespace DDH_HIDDEN
}  // namespace ddh
