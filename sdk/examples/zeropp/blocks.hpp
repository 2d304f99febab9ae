// SPDX-License-Identifier: Apache-2.0
//
// blocks.hpp: numbers in blocks of 256, each with a scale: a value is code * scale, and the codes of 8 or 4 bits are
// symmetric. A block with a value that is not finite decodes to NaN, so the host finds it as in the plain gradient.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

class Blocks {
 public:
  // `bits`: 8 or 4.
  explicit Blocks(int64_t bits) : bits_(bits), most_(bits == 8 ? 127.0F : 7.0F) {}

  // Of the codes and scales of `numel` values, a multiple of 64.
  [[nodiscard]] uint64_t bytes(uint64_t numel) const {
    return numel * static_cast<uint64_t>(bits_) / 8 + blocks_of(numel) * sizeof(float);
  }

  void encode(const float* values, uint64_t numel, uint8_t* to) const {
    uint8_t* codes = to + blocks_of(numel) * sizeof(float);
    for (uint64_t begin = 0; begin < numel; begin += kBlock, to += sizeof(float)) {
      const uint64_t n = std::min(kBlock, numel - begin);
      float largest = 0;
      bool is_finite = true;
      for (uint64_t i = 0; i < n; ++i) {
        largest = std::max(largest, std::fabs(values[begin + i]));
        is_finite = is_finite && std::isfinite(values[begin + i]);
      }
      const float scale = is_finite ? largest / most_ : std::numeric_limits<float>::quiet_NaN();
      std::memcpy(to, &scale, sizeof scale);
      const float inverse = is_finite && largest > 0 ? most_ / largest : 0;
      for (uint64_t i = 0; i < n; ++i) {
        const float rounded = is_finite ? std::nearbyint(values[begin + i] * inverse) : 0;
        put(codes, begin + i, static_cast<int32_t>(std::clamp(rounded, -most_, most_)));
      }
    }
  }

  // Adds the values to `to`, or writes them.
  void decode(const uint8_t* from, uint64_t numel, float* to, bool adds) const {
    const uint8_t* const codes = from + blocks_of(numel) * sizeof(float);
    for (uint64_t begin = 0; begin < numel; begin += kBlock, from += sizeof(float)) {
      float scale = 0;
      std::memcpy(&scale, from, sizeof scale);
      const uint64_t end = std::min(begin + kBlock, numel);
      for (uint64_t i = begin; i < end; ++i) {
        const float value = static_cast<float>(code(codes, i)) * scale;
        to[i] = adds ? to[i] + value : value;
      }
    }
  }

 private:
  static constexpr uint64_t kBlock = 256;
  static uint64_t blocks_of(uint64_t numel) { return (numel + kBlock - 1) / kBlock; }

  // Two codes of 4 bits share a byte.
  void put(uint8_t* codes, uint64_t at, int32_t code) const {
    if (bits_ == 8) {
      codes[at] = static_cast<uint8_t>(code + 128);
    } else if (at % 2 == 0) {
      codes[at / 2] = static_cast<uint8_t>(code + 8);
    } else {
      codes[at / 2] = static_cast<uint8_t>(codes[at / 2] | (code + 8) << 4);
    }
  }
  [[nodiscard]] int32_t code(const uint8_t* codes, uint64_t at) const {
    if (bits_ == 8) return codes[at] - 128;
    return (at % 2 == 0 ? codes[at / 2] & 15 : codes[at / 2] >> 4) - 8;
  }

  const int64_t bits_;
  const float most_;  // the largest code
};
