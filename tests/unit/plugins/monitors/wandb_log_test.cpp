// SPDX-License-Identifier: Apache-2.0
//
// The framing of a W&B file, read byte by byte without the code that writes it.
#include "wandb_log.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace {

// Bit by bit, as ISO 3309 defines it.
uint32_t slow_crc(const std::string& bytes) {
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = crc % 2 == 1 ? crc / 2 ^ 0xedb88320 : crc / 2;
  }
  return crc ^ 0xffffffff;
}

uint64_t number_at(const std::string& file, uint64_t at, int bytes) {
  uint64_t out = 0;
  for (int i = bytes; i-- > 0;) out = out * 256 + static_cast<unsigned char>(file[at + static_cast<uint64_t>(i)]);
  return out;
}

// The records of a whole file. Every part is checked: it ends within its block, and types follow one another as they may.
std::vector<std::string> records_of(const std::string& file) {
  std::vector<std::string> out;
  REQUIRE(file.substr(0, 7) == std::string(":W&B\xe1\xbe\0", 7));
  bool is_open = false;
  for (uint64_t at = 7; at < file.size();) {
    if (const uint64_t room = 32768 - at % 32768; room < 7) {
      REQUIRE(file.substr(at, room) == std::string(room, '\0'));
      at += room;
      continue;
    }
    const uint64_t length = number_at(file, at + 4, 2), type = number_at(file, at + 6, 1);
    REQUIRE(at + 7 + length <= file.size());
    REQUIRE(at % 32768 + 7 + length <= 32768);
    REQUIRE(number_at(file, at, 4) == slow_crc(file.substr(at + 6, 1 + length)));
    REQUIRE((type >= 1 && type <= 4));
    REQUIRE((type == 3 || type == 4) == is_open);
    if (!is_open) out.emplace_back();
    out.back() += file.substr(at + 7, length);
    is_open = type == 2 || type == 3;
    at += 7 + length;
  }
  REQUIRE_FALSE(is_open);
  return out;
}

std::string file_of(const std::vector<std::string>& records) {
  std::string file(wandb_log::kBegin);
  for (const std::string& record : records) file += wandb_log::framed(file.size(), record);
  return file;
}

// Text that does not repeat within a block.
std::string text_of(size_t size, uint32_t seed) {
  std::string out;
  for (uint32_t x = seed; out.size() < size; x = x * 1664525 + 1013904223) out += static_cast<char>(x >> 24);
  return out;
}

std::vector<std::string> read(const std::string& file) {
  wandb_log::Reader reader(file);
  std::vector<std::string> out;
  while (std::optional<std::string> record = reader.next()) out.push_back(*std::move(record));
  return out;
}

}  // namespace

TEST_CASE("the crc is that of zlib", "[wandb]") {
  CHECK(crc_of<kCrc32>("") == 0);
  CHECK(crc_of<kCrc32>("123456789") == 0xcbf43926);
  CHECK(crc_of<kCrc32>("Weights & Biases") % 65536 == 0xbee1);  // what the file begins with
}

TEST_CASE("a file of W&B begins with its name, and a record with crc, length and type", "[wandb]") {
  CHECK(file_of({}) == std::string(":W&B\xe1\xbe\0", 7));
  const std::string file = file_of({"ab"});
  CHECK(file.size() == 7 + 7 + 2);
  CHECK(file.substr(11) == std::string("\x02\0\x01", 3) + "ab");
  CHECK(number_at(file, 7, 4) == slow_crc("\x01"
                                          "ab"));
}

TEST_CASE("records go on in the next block, whatever room the first has", "[wandb]") {
  // The second record begins 0 to 20 bytes before the end of the first block.
  for (size_t room = 0; room <= 20; ++room) {
    const size_t first = 32768 - 7 - 7 - room;
    for (const size_t size : {size_t{0}, size_t{1}, size_t{6}, size_t{7}, size_t{13}, size_t{14}, size_t{32761},
                              size_t{32762}, size_t{100000}}) {
      INFO(room << " bytes of room for " << size);
      const std::vector<std::string> records = {text_of(first, 1), text_of(size, 2), "end"};
      const std::string file = file_of(records);
      CHECK(records_of(file) == records);
      CHECK(read(file) == records);
    }
  }
}

TEST_CASE("a file that was cut anywhere, or is damaged, has the records before that place", "[wandb]") {
  const std::vector<std::string> records = {"header", text_of(300, 1), text_of(70000, 2), "last"};
  const std::string file = file_of(records);
  size_t whole = 0, end = wandb_log::kBegin.size();
  for (size_t size = 0; size <= file.size(); size += size < 400 || size > file.size() - 50 ? 1 : 997) {
    while (whole < records.size() && size >= end + wandb_log::framed(end, records[whole]).size())
      end += wandb_log::framed(end, records[whole++]).size();
    const std::vector<std::string> kept(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(whole));
    INFO("cut after " << size << " bytes");
    CHECK(read(file.substr(0, size)) == kept);
  }
  std::string damaged = file;
  damaged[wandb_log::kBegin.size() + 7 + 6 + 7 + 20] ^= 1;  // in the second record
  CHECK(read(damaged) == std::vector<std::string>{"header"});
  CHECK(read("other" + file).empty());
  const auto is_damage = [](const std::string& bytes) {
    wandb_log::Reader reader(bytes);
    while (reader.next()) {
    }
    return reader.is_damaged();
  };
  CHECK(is_damage(damaged));
  CHECK(is_damage("other" + file));
  damaged = file;
  damaged[wandb_log::kBegin.size() + 5] = '\x7f';  // a length that no block has
  CHECK(is_damage(damaged));
  CHECK_FALSE(is_damage(file));
  CHECK_FALSE(is_damage(file.substr(0, file.size() - 2)));  // the run was killed
}
