// SPDX-License-Identifier: Apache-2.0
//
// Each request is the number of bytes that follow, 8 bytes long. It is sent back when they have come.
#include "survey/wire.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

namespace ddhost {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr size_t kPart = size_t{1} << 20;
constexpr std::chrono::seconds kPatience{5};  // of one call

// Waits for the other end no longer than kPatience.
void set_patience(const Fd& socket) {
  ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) & ~O_NONBLOCK);
  const timeval patience{kPatience.count(), 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

bool send_all(const Fd& socket, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::send(socket.get(), at, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool receive_all(const Fd& socket, void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::recv(socket.get(), at, bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

// Seconds of one request.
std::optional<double> request(const Fd& socket, uint64_t bytes, const std::vector<char>& part) {
  const auto begin = SteadyClock::now();
  bool is_sent = send_all(socket, &bytes, sizeof bytes);
  for (uint64_t done = 0; is_sent && done < bytes; done += part.size())
    is_sent = send_all(socket, part.data(), static_cast<size_t>(std::min<uint64_t>(part.size(), bytes - done)));
  uint64_t echo = 0;
  if (!is_sent || !receive_all(socket, &echo, sizeof echo) || echo != bytes) return std::nullopt;
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

}  // namespace

void WireListener::serve(SteadyClock::time_point deadline) {
  std::vector<Guest> guests;
  while (guests.empty() && SteadyClock::now() < deadline) {
    std::vector<pollfd> set = door_.poll_set();
    ::poll(set.data(), set.size(), 50);
    guests = door_.serve(set);
  }
  if (guests.empty()) return;
  const Fd& socket = guests.front().socket;
  set_patience(socket);
  std::vector<char> part(kPart);
  uint64_t bytes = 0;
  while (SteadyClock::now() < deadline && receive_all(socket, &bytes, sizeof bytes)) {
    for (uint64_t done = 0; done < bytes; done += part.size())
      if (!receive_all(socket, part.data(), static_cast<size_t>(std::min<uint64_t>(part.size(), bytes - done)))) return;
    if (!send_all(socket, &bytes, sizeof bytes)) return;
  }
}

WireSpeed measure_wire(const Endpoint& endpoint, const Token& token) {
  const Admission in = enter(endpoint, token, GuestKind::kAgent, 0, SteadyClock::now() + kPatience);
  if (!in.socket) return {0, 0, in.problem};
  set_patience(*in.socket);
  const std::vector<char> part(kPart, 'x');
  constexpr size_t kTrips = 41;
  std::vector<double> trips;
  for (size_t i = 0; i < kTrips; ++i) {
    const std::optional<double> trip = request(*in.socket, 0, part);
    if (!trip) return {0, 0, "the connection has ended while it was measured"};
    trips.push_back(*trip);
  }
  std::nth_element(trips.begin(), trips.begin() + kTrips / 2, trips.end());
  WireSpeed speed{trips[kTrips / 2], 0, ""};
  constexpr double kLongEnough = 0.1;                                // seconds
  for (uint64_t bytes = kPart; bytes <= kPart << 12U; bytes *= 2) {  // at most 4 GiB
    const std::optional<double> took = request(*in.socket, bytes, part);
    if (!took) return {0, 0, "the connection has ended while it was measured"};
    speed.bytes_per_s = static_cast<double>(bytes) / *took;
    if (*took >= kLongEnough) break;
  }
  return speed;
}

}  // namespace ddhost
