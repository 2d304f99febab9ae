// SPDX-License-Identifier: Apache-2.0
//
// The checksum: whole blocks by vectors, then the rest, folded into 64 bits.
#include "ddh/sdk/tier/checksum.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

uint64_t checksum64(const void* data, uint64_t bytes) {
  static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");
  constexpr uint64_t kBlock = detail::ChecksumLanes::kBlockBytes;
  uint32_t lanes[kBlock / sizeof(uint32_t)];
  for (uint32_t i = 0; i < kBlock / sizeof(uint32_t); ++i) lanes[i] = (i + 1) * 0x85EBCA77U;
  const auto* at = static_cast<const std::byte*>(data);
  using Kernel = Kernel<detail::ChecksumLanes>;
  Kernel::run(lanes, at, bytes / kBlock);
  if (bytes % kBlock != 0) {
    std::byte tail[kBlock] = {};
    std::memcpy(tail, at + bytes / kBlock * kBlock, bytes % kBlock);
    Kernel::run(lanes, tail, 1);
  }
  uint64_t sum = bytes * 0x9E3779B97F4A7C15U;
  for (const uint32_t lane : lanes) {
    sum = (sum ^ lane) * 0xBF58476D1CE4E5B9U;
    sum ^= sum >> 29;
  }
  return sum;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
