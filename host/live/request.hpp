// SPDX-License-Identifier: Apache-2.0
//
// live/request.hpp: reads a request to the page of a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ddhost {

// The head of an HTTP request. The page has three addresses, so everything else is refused, also what another server would
// take: other methods, a body, two Host headers, folded lines. A head of more bytes is refused too; browsers send the cookies
// of every other server of this machine.
inline constexpr size_t kMostRequestBytes = size_t{16} << 10;

struct PageRequest {
  enum class What {
    kIncomplete,  // more bytes may follow
    kDocument,
    kScript,
    kState,    // a newer one than `after`
    kRefused,  // `status` says how
  };
  What what = What::kIncomplete;
  int status = 0;      // of HTTP: 400, 403, 404, 405, 431
  uint64_t after = 0;  // version that the client has; 0: none
};

// What the bytes of a connection ask for. `token`: the secret in the address. `address`: the IP address of the page, which is a
// name of the host as "localhost" is; others are refused, because a name of a foreign site may lead here (DNS rebinding).
PageRequest read_request(std::string_view bytes, std::string_view token, std::string_view address);

}  // namespace ddhost
