// SPDX-License-Identifier: Apache-2.0
//
// survey/wire.hpp: measures one TCP connection between two hosts. The listener lets in only who proves that it knows the token.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "launch/cluster/door.hpp"

namespace ddhost {

struct WireSpeed {
  double round_trip_s = 0, bytes_per_s = 0;
  std::string problem;  // "": the two numbers were measured
};

class WireListener {
 public:
  WireListener(const std::string& address, PortRange ports, const Token& token)
      : door_(listen_at(address, ports), token) {}
  [[nodiscard]] const Endpoint& at() const { return door_.endpoint(); }
  // Answers one connection until it ends, or no longer than until `deadline`. [blocks]
  void serve(std::chrono::steady_clock::time_point deadline);

 private:
  Door door_;
};

// Median of many round trips of 8 bytes; rate of one direction, in about a fifth of a second. [blocks]
WireSpeed measure_wire(const Endpoint& endpoint, const Token& token);

}  // namespace ddhost
