// SPDX-License-Identifier: Apache-2.0
#include "launch/cluster/address.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <vector>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
// Of a network for documentation: connecting a datagram socket sends nothing, but chooses a route.
constexpr const char* kElsewhere = "192.0.2.1";

struct AnyAddress {
  sockaddr_storage storage{};
  socklen_t length = sizeof(sockaddr_storage);
  [[nodiscard]] sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

std::string text_of(const sockaddr* address, socklen_t length) {
  std::array<char, NI_MAXHOST> host{};
  if (::getnameinfo(address, length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return host.data();
}

std::optional<AnyAddress> resolved(const std::string& host, uint16_t port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, ::freeaddrinfo);
  const addrinfo* best = found;  // IPv4 where there is one: every engine between hosts takes it
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next)
    if (at->ai_family == AF_INET) {
      best = at;
      break;
    }
  AnyAddress out;
  std::memcpy(&out.storage, best->ai_addr, best->ai_addrlen);
  out.length = best->ai_addrlen;
  return out;
}

std::string route_to(const std::string& host) {
  const std::optional<AnyAddress> to = resolved(host, 9);
  if (!to) return "";
  const Fd socket(::socket(to->storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0 || ::connect(socket.get(), to->get(), to->length) != 0) return "";
  return local_address(socket);
}

// A host's own name is often 127.0.1.1, which no other host reaches.
bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

uint16_t number(const std::string& text, const std::string& what) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > 65535)
    ddh::fail(DDH_INVALID_ARGUMENT, what, ": '", plain_text(text, 100), "' is no port; give a number from 1 to 65535");
  return static_cast<uint16_t>(value);
}

struct Interface {
  std::string name, address;
  bool is_v4, leads_elsewhere;
};
std::vector<Interface> interfaces() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0)
    ddh::fail(DDH_INTERNAL, "the network interfaces of this host can't be listed: ", std::strerror(errno));
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(found, ::freeifaddrs);
  std::vector<Interface> out;
  for (const ifaddrs* at = found; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const bool is_v4 = family == AF_INET, works = (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_RUNNING) != 0;
    out.push_back({at->ifa_name, text_of(at->ifa_addr, is_v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)), is_v4,
                   works && (at->ifa_flags & IFF_LOOPBACK) == 0});
  }
  return out;
}

std::string names_of(const std::vector<Interface>& list) {
  std::string names;
  for (const Interface& one : list) names += ddh::str(names.empty() ? "" : ", ", one.name, " (", one.address, ")");
  return names;
}

// Where there is no route to elsewhere, the other hosts are on a network of their own.
std::string only_address() {
  std::vector<Interface> all = interfaces();
  std::erase_if(all, [](const Interface& one) { return !one.is_v4 || !one.leads_elsewhere; });
  if (all.empty()) return kLoopback;
  if (all.size() > 1)
    ddh::fail(DDH_FAILED_PRECONDITION, "this host has no route that shows which of its interfaces leads to the other ",
              "hosts: ", names_of(all), "; set launch.interface to that one");
  return all.front().address;
}

}  // namespace

void send_at_once(const Fd& socket) {
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string Endpoint::text() const {
  return address.find(':') == std::string::npos ? ddh::str(address, ":", port) : ddh::str("[", address, "]:", port);
}

Endpoint parse_endpoint(const std::string& text, const std::string& key) {
  const size_t colon = text.rfind(':');
  std::string host = text.substr(0, std::min(colon, text.size()));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (colon == std::string::npos || host.empty())
    ddh::fail(DDH_INVALID_ARGUMENT, key, "=", plain_text(text, 200), " is not host:port");
  const uint16_t port = number(text.substr(colon + 1), key);
  const std::optional<AnyAddress> found = resolved(host, port);
  if (!found) ddh::fail(DDH_NOT_FOUND, key, ": the host '", plain_text(host, 200), "' has no address");
  return {text_of(found->get(), found->length), port};
}

std::string local_address(const Fd& socket) {
  AnyAddress mine;
  if (::getsockname(socket.get(), mine.get(), &mine.length) != 0) return "";
  return text_of(mine.get(), mine.length);
}

std::string own_address(const std::string& interface, const std::string& toward) {
  if (interface.empty()) {
    for (const std::string& host : {toward, std::string(kElsewhere)})
      if (const std::string found = host.empty() ? "" : route_to(host); !found.empty() && !is_loopback(found))
        return found;
    return only_address();
  }
  const std::vector<Interface> all = interfaces();
  std::string of_v6;
  for (const Interface& one : all) {
    if (one.address == interface || (one.name == interface && one.is_v4)) return one.address;
    if (one.name == interface && of_v6.empty()) of_v6 = one.address;
  }
  if (!of_v6.empty()) return of_v6;
  ddh::fail(DDH_NOT_FOUND, "launch.interface=", plain_text(interface, 100),
            " is no interface or address of this host, which has ", names_of(all));
}

bool is_own_address(const sockaddr* address, socklen_t length) {
  const Fd socket(::socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return socket.get() >= 0 && ::bind(socket.get(), address, length) == 0;
}

PortRange parse_ports(const std::string& text) {
  if (text.empty()) return {};
  const size_t dash = text.find('-');
  const uint16_t first = number(text.substr(0, dash), "launch.ports");
  const uint16_t last = dash == std::string::npos ? first : number(text.substr(dash + 1), "launch.ports");
  if (last < first)
    ddh::fail(DDH_INVALID_ARGUMENT, "launch.ports=", text, " ends before it begins; give the lower port first");
  return {first, last};
}

Listener listen_at(const std::string& address, PortRange ports) {
  std::string problem;
  for (uint32_t port = ports.first; port <= ports.last; ++port) {
    std::optional<AnyAddress> at = resolved(address, static_cast<uint16_t>(port));
    if (!at) ddh::fail(DDH_NOT_FOUND, "'", address, "' is no address of this host; set launch.interface");
    Fd socket(::socket(at->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (port != 0) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (socket.get() < 0 || ::bind(socket.get(), at->get(), at->length) != 0 || ::listen(socket.get(), 1024) != 0) {
      problem = std::strerror(errno);
      continue;
    }
    AnyAddress mine;
    ::getsockname(socket.get(), mine.get(), &mine.length);
    const uint16_t given = mine.storage.ss_family == AF_INET
                               ? reinterpret_cast<const sockaddr_in*>(&mine.storage)->sin_port
                               : reinterpret_cast<const sockaddr_in6*>(&mine.storage)->sin6_port;
    return {std::move(socket), {address, ntohs(given)}};
  }
  ddh::fail(DDH_RESOURCE_EXHAUSTED, "the run can't listen on ", address,
            ports.first == 0 ? "" : ddh::str(" with a port of launch.ports=", ports.first, "-", ports.last), ": ",
            problem, "; give other ports, or set launch.interface");
}

std::optional<Fd> connect_to(const Endpoint& endpoint, std::chrono::steady_clock::time_point deadline) {
  std::optional<AnyAddress> to = resolved(endpoint.address, endpoint.port);
  if (!to) return std::nullopt;
  Fd socket(::socket(to->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return std::nullopt;
  if (::connect(socket.get(), to->get(), to->length) != 0) {
    if (errno != EINPROGRESS) return std::nullopt;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd writable{socket.get(), POLLOUT, 0};
    int problem = 0;
    socklen_t length = sizeof problem;
    if (::poll(&writable, 1, static_cast<int>(std::max<int64_t>(left, 0))) != 1 ||
        ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &problem, &length) != 0 || problem != 0)
      return std::nullopt;
  }
  ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) & ~O_NONBLOCK);
  send_at_once(socket);
  return socket;
}

}  // namespace ddhost
