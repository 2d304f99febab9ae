// SPDX-License-Identifier: Apache-2.0
//
// The framing of event files, against published checksums and a record that TensorFlow wrote.
#include "record.hpp"

#include <catch2/catch.hpp>

TEST_CASE("crc32c has the values of RFC 3720 and of the catalogue of checksums", "[record]") {
  CHECK(record::crc32c("") == 0);
  CHECK(record::crc32c("123456789") == 0xe3069283);
  CHECK(record::crc32c(std::string(32, '\0')) == 0x8a9136aa);
  CHECK(record::crc32c(std::string(32, '\xff')) == 0x62a8ab43);
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i), falling += static_cast<char>(31 - i);
  CHECK(record::crc32c(rising) == 0x46dd794e);
  CHECK(record::crc32c(falling) == 0x113fdb5c);
}

TEST_CASE("a masked crc is rotated by 15 bits and shifted by a constant", "[record]") {
  CHECK(record::masked(0) == 0xa282ead8);
  CHECK(record::masked(0x00008000) == 0xa282ead9);
  CHECK(record::masked(1) == 0xa284ead8);
}

TEST_CASE("a record is its length, its data and the checksums of both", "[record]") {
  // An event as tensorboard's own writer frames it: wall_time 0, file_version "brain.Event:2".
  const std::string data = std::string("\x09", 1) + std::string(8, '\0') +
                           "\x1a\x0d"
                           "brain.Event:2";
  const std::string framed = record::framed(data);
  REQUIRE(framed.size() == 8 + 4 + data.size() + 4);
  CHECK(framed.substr(0, 8) == std::string("\x18\0\0\0\0\0\0\0", 8));
  CHECK(framed.substr(8, 4) == record::little_endian(record::masked(record::crc32c(framed.substr(0, 8)))));
  CHECK(framed.substr(12, data.size()) == data);
  CHECK(framed.substr(8, 4) == "\xa3\x7f\x4b\x22");
  CHECK(framed.substr(12 + data.size()) == "\xee\xdf\x28\xa3");
}
