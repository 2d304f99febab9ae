// SPDX-License-Identifier: Apache-2.0
//
// The file of a W&B run, a form of LevelDB's log: 7 bytes say what it is, then there are blocks of 32 KiB, which are counted
// from the beginning of the file. A record that does not fit into the rest of its block is continued in the next:
//
//   crc of type and data (4 bytes), length (2), type (1), data (length)        type: whole 1, first 2, middle 3, last 4
//
// A rest of fewer than 7 bytes is zero. Numbers are little-endian, the crc is that of zlib.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "crc32.hpp"

namespace wandb_log {

constexpr std::string_view kBegin{":W&B\xe1\xbe\0", 7};
constexpr uint64_t kBlock = 32768, kHead = 7;

enum Type : char { kWhole = 1, kFirst, kMiddle, kLast };

// One part of a record, which fits into its block.
inline std::string part(Type type, std::string_view data) {
  std::string checked(1, type);
  checked += data;
  const uint32_t crc = crc_of<kCrc32>(checked);
  std::string out;
  for (int i = 0; i < 4; ++i) out += static_cast<char>(crc >> 8 * i & 0xff);
  for (int i = 0; i < 2; ++i) out += static_cast<char>(data.size() >> 8 * i & 0xff);
  return out + checked;
}

// `data` as the record that begins at byte `offset` of the file.
inline std::string framed(uint64_t offset, std::string_view data) {
  std::string out;
  uint64_t room = kBlock - offset % kBlock;
  if (room < kHead) {
    out.append(room, '\0');
    room = kBlock;
  }
  for (bool is_first = true;; is_first = false, room = kBlock) {
    const std::string_view here = data.substr(0, std::min<uint64_t>(data.size(), room - kHead));
    data.remove_prefix(here.size());
    const bool is_last = data.empty();
    out += part(is_first ? (is_last ? kWhole : kFirst) : (is_last ? kLast : kMiddle), here);
    if (is_last) return out;
  }
}

// The records of a file, up to its end or the first one that is not whole. A file that ends within a record was not written to
// its end: its run was killed. Other errors are damages.
class Reader {
 public:
  explicit Reader(std::string_view file) : file_(file), at_(kBegin.size()), is_damaged_(!file.starts_with(kBegin)) {}

  [[nodiscard]] bool is_damaged() const { return is_damaged_; }
  // The byte at which the next record begins.
  [[nodiscard]] uint64_t at() const { return at_; }

  std::optional<std::string> next() {
    std::string out;
    if (is_damaged_) return std::nullopt;
    for (bool is_first = true;; is_first = false) {
      if (const uint64_t room = kBlock - at_ % kBlock; room < kHead) at_ += room;
      if (at_ + kHead > file_.size()) return std::nullopt;
      const auto byte = [this](uint64_t i) { return static_cast<unsigned char>(file_[at_ + i]); };
      const uint64_t length = byte(4) | byte(5) << 8;
      const auto type = static_cast<Type>(byte(6));
      if (length > kBlock - at_ % kBlock - kHead) {  // no part goes beyond its block
        is_damaged_ = true;
        return std::nullopt;
      }
      if (at_ + kHead + length > file_.size()) return std::nullopt;
      const std::string_view data = file_.substr(at_ + kHead, length);
      const bool is_expected = is_first ? type == kWhole || type == kFirst : type == kMiddle || type == kLast;
      if (!is_expected || file_.substr(at_, kHead + length) != part(type, data)) {
        is_damaged_ = true;
        return std::nullopt;
      }
      at_ += kHead + length;
      out += data;
      if (type == kWhole || type == kLast) return out;
    }
  }

 private:
  std::string_view file_;
  uint64_t at_;
  bool is_damaged_;
};

}  // namespace wandb_log
