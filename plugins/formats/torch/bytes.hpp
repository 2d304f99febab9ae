// SPDX-License-Identifier: Apache-2.0
//
// formats/torch/bytes.hpp: reads little-endian numbers from bytes that are not trusted: every place is checked.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "ddh/sdk/plugin.hpp"

namespace torch_format {

class ByteReader {
 public:
  // `what` names the bytes in errors.
  ByteReader(std::string_view bytes, std::string what) : bytes_(bytes), what_(std::move(what)) {}

  [[nodiscard]] uint64_t at() const { return at_; }
  [[nodiscard]] uint64_t left() const { return bytes_.size() - at_; }
  void go_to(uint64_t place) {
    if (place > bytes_.size()) cut_short();
    at_ = place;
  }
  std::string_view take(uint64_t n) {
    if (n > left()) cut_short();
    at_ += n;
    return bytes_.substr(at_ - n, n);
  }
  template <class T>
  T number() {
    T value{};
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  // Up to a newline, which is taken too.
  std::string_view line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) cut_short();
    const std::string_view text = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return text;
  }
  [[noreturn]] void cut_short() const {
    ddh::fail(DDH_DATA_LOSS, what_, " is damaged or cut short (at byte ", at_, "); get the file again");
  }
  [[nodiscard]] const std::string& what() const { return what_; }

 private:
  std::string_view bytes_;
  std::string what_;
  uint64_t at_ = 0;
};

}  // namespace torch_format
