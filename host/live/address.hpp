// SPDX-License-Identifier: Apache-2.0
//
// live/address.hpp: where the page of a run listens (monitor.page), and the secret in its address.
#pragma once

#include <cstdint>
#include <string>

#include "launch/kv.hpp"

namespace ddhost {

struct PageAddress {
  std::string host;  // 127.0.0.1, ::1
  uint16_t port = 0;
  // "127.0.0.1:8000", "[::1]:8000"
  [[nodiscard]] std::string text() const;
};

// "127.0.0.1:0", "localhost:8000", "[::1]:0". Error: it is no address and port, or other hosts can reach it.
PageAddress parse_page_address(const std::string& text);

// A socket that listens there; sets the port if it is 0. Error: the port is in use, or not allowed.
Fd listen_for_page(PageAddress& at);

// 128 random bits, as 32 digits.
std::string random_token();

}  // namespace ddhost
