// SPDX-License-Identifier: Apache-2.0
#include "launch/cluster/door.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ddhost {
namespace {

// A few bytes fit into the buffer of a new connection, so this does not wait.
template <class T>
bool send_now(const Fd& socket, const T& value) {
  return ::send(socket.get(), &value, sizeof value, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(sizeof value);
}

template <class T>
bool read_by(const Fd& socket, T& value, std::chrono::steady_clock::time_point deadline) {
  auto* const bytes = reinterpret_cast<char*>(&value);
  for (size_t done = 0; done < sizeof value;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd readable{socket.get(), POLLIN, 0};
    if (left <= 0 || ::poll(&readable, 1, static_cast<int>(left)) != 1) return false;
    const ssize_t n = ::recv(socket.get(), bytes + done, sizeof value - done, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) return false;
    if (n > 0) done += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

std::vector<pollfd> Door::poll_set() const {
  std::vector<pollfd> set;
  const bool is_full = strangers_.size() >= kMostStrangers;
  set.push_back({is_full ? -1 : listener_.socket.get(), POLLIN, 0});
  for (const Stranger& stranger : strangers_) set.push_back({stranger.socket.get(), POLLIN, 0});
  return set;
}

int Door::timeout_ms() const {
  if (strangers_.empty()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(strangers_.front().until - Clock::now()).count();
  return static_cast<int>(std::max<int64_t>(left, 0));
}

std::vector<Guest> Door::serve(const std::vector<pollfd>& polled) {
  std::vector<Guest> guests;
  size_t i = 1;
  const auto now = Clock::now();
  for (auto at = strangers_.begin(); at != strangers_.end(); ++i) {
    Claim claim;
    const bool is_readable = i < polled.size() && polled[i].revents != 0;
    const Heard heard = is_readable ? hear(*at, claim) : Heard::kWait;
    if (heard == Heard::kGuest) guests.push_back({std::move(at->socket), claim.kind, static_cast<int>(claim.task)});
    at = heard != Heard::kWait || now >= at->until ? strangers_.erase(at) : std::next(at);
  }
  if (!polled.empty() && polled[0].revents != 0) accept_some();
  return guests;
}

void Door::accept_some() {
  while (strangers_.size() < kMostStrangers) {
    Fd socket(::accept4(listener_.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() < 0) return;
    send_at_once(socket);
    Stranger stranger{std::move(socket), Clock::now() + kPatience, {}, ""};
    stranger.hello.nonce = random_bytes();
    if (send_now(stranger.socket, stranger.hello)) strangers_.push_back(std::move(stranger));
  }
}

Door::Heard Door::hear(Stranger& stranger, Claim& claim) const {
  std::array<char, sizeof(Claim)> chunk{};
  const ssize_t n = ::recv(stranger.socket.get(), chunk.data(), sizeof(Claim) - stranger.in.size(), 0);
  if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) return Heard::kGone;
  if (n > 0) stranger.in.append(chunk.data(), static_cast<size_t>(n));
  if (stranger.in.size() < sizeof claim) return Heard::kWait;
  std::memcpy(&claim, stranger.in.data(), sizeof claim);
  const bool is_known =
      claim.version == kWireVersion && (claim.kind == GuestKind::kStore || claim.kind == GuestKind::kAgent);
  if (!is_known || !are_equal(claim.proof, proof_of_claim(token_, stranger.hello, claim))) return Heard::kGone;
  return send_now(stranger.socket, Welcome{proof_of_welcome(token_, stranger.hello, claim)}) ? Heard::kGuest
                                                                                             : Heard::kGone;
}

Admission enter(const Endpoint& endpoint, const Token& token, GuestKind kind, int task,
                std::chrono::steady_clock::time_point deadline) {
  std::optional<Fd> socket = connect_to(endpoint, deadline);
  if (!socket) return {std::nullopt, "nobody listens there, or the way is blocked"};
  Hello hello;
  if (!read_by(*socket, hello, deadline)) return {std::nullopt, "who listens there says nothing"};
  if (hello.version != kWireVersion)
    return {std::nullopt, "who listens there is another program, or another version of this one"};
  Claim claim{kWireVersion, kind, static_cast<uint32_t>(task), random_bytes(), {}};
  claim.proof = proof_of_claim(token, hello, claim);
  Welcome welcome;
  if (!send_now(*socket, claim) || !read_by(*socket, welcome, deadline) ||
      !are_equal(welcome.proof, proof_of_welcome(token, hello, claim)))
    return {std::nullopt, "who listens there does not know the token of this run"};
  return {std::move(socket), ""};
}

}  // namespace ddhost
