// SPDX-License-Identifier: Apache-2.0
//
// TFRecord, the framing of event files (tensorflow/core/lib/io/record_writer.cc, tensorflow/core/lib/hash/crc32c.h):
//
//   length (8 bytes), masked crc of the length (4), data (length bytes), masked crc of the data (4)
//
// Numbers are little-endian. The crc is CRC-32C (Castagnoli, RFC 3720), masked because data may hold crcs itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "crc32.hpp"

namespace record {

constexpr uint32_t crc32c(std::string_view bytes) { return crc_of<kCrc32c>(bytes); }

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
