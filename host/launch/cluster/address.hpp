// SPDX-License-Identifier: Apache-2.0
//
// launch/cluster/address.hpp: IP addresses and ports of a run's hosts, and sockets that listen or connect.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "launch/kv.hpp"

namespace ddhost {

struct Endpoint {
  std::string address;  // IPv4 or IPv6, as text
  uint16_t port = 0;
  [[nodiscard]] std::string text() const;  // "10.0.0.1:4000", "[fe80::1]:4000"
};

// "host:port", "[address]:port". Error: no port, or a host that has no address.
Endpoint parse_endpoint(const std::string& text, const std::string& key);

// This host's address: of `interface` (a name such as eth0, or an address of this host), or where that is "", the address
// from which `toward` is reached, or where that is "" too, the one from which other networks are, or that of the only
// interface; 127.0.0.1 if there is no network. Error: no such interface, one without an address, or several without a route.
std::string own_address(const std::string& interface, const std::string& toward);

// Whether a socket of this host could listen there.
bool is_own_address(const sockaddr* address, socklen_t length);

// The ports that launch.ports allows: "4000-4010", or "" for any. Error: not two numbers from 1 to 65535.
struct PortRange {
  uint16_t first = 0, last = 0;
};
PortRange parse_ports(const std::string& text);

struct Listener {
  Fd socket;
  Endpoint at;
};
// Listens on one address. Error: no port of the range is free.
Listener listen_at(const std::string& address, PortRange ports);

// A connected socket that sends small messages at once; none after `deadline`, or if the endpoint refuses.
std::optional<Fd> connect_to(const Endpoint& endpoint, std::chrono::steady_clock::time_point deadline);
// Small messages do not wait for more data.
void send_at_once(const Fd& socket);
// This host's name.
std::string host_name();
// The address of this end.
std::string local_address(const Fd& socket);

}  // namespace ddhost
