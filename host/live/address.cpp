// SPDX-License-Identifier: Apache-2.0
#include "live/address.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

// Few: further connections wait in their clients, which costs the run nothing.
constexpr int kBacklog = 32;

[[noreturn]] void refuse(const std::string& text, const char* why) {
  ddh::fail(DDH_INVALID_ARGUMENT, "monitor.page (--page) '", plain_text(text, kShownValue), "' ", why);
}

}  // namespace

std::string PageAddress::text() const {
  return host.find(':') == std::string::npos ? ddh::str(host, ":", port) : ddh::str("[", host, "]:", port);
}

PageAddress parse_page_address(const std::string& text) {
  constexpr const char* kForm = "is no address and port; give for example 127.0.0.1:0, where 0 is any free port";
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) refuse(text, kForm);
  PageAddress out{text.substr(0, colon), 0};
  const char* const end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data() + colon + 1, end, out.port);
  if (error != std::errc{} || read != end) refuse(text, kForm);
  if (out.host == "localhost") out.host = "127.0.0.1";
  if (out.host.size() > 2 && out.host.front() == '[' && out.host.back() == ']')
    out.host = out.host.substr(1, out.host.size() - 2);
  in_addr v4{};
  in6_addr v6{};
  if (::inet_pton(AF_INET, out.host.c_str(), &v4) == 1 && (ntohl(v4.s_addr) >> 24) == 127) return out;
  if (::inet_pton(AF_INET6, out.host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6) != 0) {
    out.host = "::1";
    return out;
  }
  refuse(text,
         "can be reached by other hosts, or is a name, but the page is not encrypted; give 127.0.0.1:PORT, and from "
         "another host open it through `ssh -L PORT:127.0.0.1:PORT`");
}

Fd listen_for_page(PageAddress& at) {
  const bool is_v6 = at.host.find(':') != std::string::npos;
  sockaddr_storage storage{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(storage);
  storage.ss_family = is_v6 ? AF_INET6 : AF_INET;
  ::inet_pton(storage.ss_family, at.host.c_str(),
              is_v6 ? static_cast<void*>(&v6.sin6_addr) : static_cast<void*>(&v4.sin_addr));
  (is_v6 ? v6.sin6_port : v4.sin_port) = htons(at.port);
  socklen_t length = is_v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  Fd socket(::socket(storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0)
    ddh::fail(DDH_UNAVAILABLE, "the page of the run can't have a socket for ", at.text(), ": ", std::strerror(errno),
              "; close other programs, or give an address of the other kind as --page (127.0.0.1:0, [::1]:0)");
  const int on = 1, seconds = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // of the run before, whose clients were there
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds);
  if (::bind(socket.get(), address, length) != 0 || ::listen(socket.get(), kBacklog) != 0)
    ddh::fail(DDH_UNAVAILABLE, "the page of the run can't listen on ", at.text(), ": ", std::strerror(errno),
              "; give another address or port as --page, such as 127.0.0.1:0");
  ::getsockname(socket.get(), address, &length);
  at.port = ntohs(is_v6 ? v6.sin6_port : v4.sin_port);
  return socket;
}

std::string random_token() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    ddh::fail(DDH_UNAVAILABLE,
              "the system gives no random numbers for the address of the page (getrandom): ", std::strerror(errno),
              "; run without --page");
  return hex_text(bytes);
}

}  // namespace ddhost
