// SPDX-License-Identifier: Apache-2.0
//
// TFRecord, the framing of event files (tensorflow/core/lib/io/record_writer.cc, tensorflow/core/lib/hash/crc32c.h):
//
//   length (8 bytes), masked crc of the length (4), data (length bytes), masked crc of the data (4)
//
// Numbers are little-endian. The crc is CRC-32C (Castagnoli, RFC 3720), masked because data may hold crcs itself.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace record {

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  constexpr uint32_t kPolynomial = 0x82f63b78;  // of CRC-32C, bits reversed
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ kPolynomial : crc >> 1;
    table[byte] = crc;
  }
  return table;
}();

constexpr uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) crc = crc >> 8 ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

constexpr uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8; }

template <class Number>
std::string little_endian(Number number) {
  std::string bytes;
  for (size_t i = 0; i < sizeof number; ++i) bytes += static_cast<char>(number >> 8 * i & 0xff);
  return bytes;
}

// `data` as one record.
inline std::string framed(std::string_view data) {
  const std::string length = little_endian(static_cast<uint64_t>(data.size()));
  std::string out = length + little_endian(masked(crc32c(length)));
  out += data;
  return out + little_endian(masked(crc32c(data)));
}

}  // namespace record
