// SPDX-License-Identifier: Apache-2.0
//
// Checksums of 32 bits as files of other programs have them, byte by byte from a table.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

// Both polynomials have their bits reversed.
constexpr uint32_t kCrc32 = 0xedb88320;   // of zlib and gzip
constexpr uint32_t kCrc32c = 0x82f63b78;  // of Castagnoli, RFC 3720

template <uint32_t kPolynomial>
constexpr uint32_t crc_of(std::string_view bytes) {
  constexpr std::array<uint32_t, 256> kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t byte = 0; byte < table.size(); ++byte) {
      uint32_t crc = byte;
      for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ kPolynomial : crc >> 1;
      table[byte] = crc;
    }
    return table;
  }();
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}
