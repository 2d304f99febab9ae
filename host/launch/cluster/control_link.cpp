// SPDX-License-Identifier: Apache-2.0
//
// A message is its length (uint32, of this machine) and its text. A beat has length 0.
#include "launch/cluster/control_link.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr uint32_t kMaxMessageBytes = 1 << 20;

int ms_until(ControlLink::Clock::time_point when) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(when - ControlLink::Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
}

std::string framed(const std::string& text) {
  const auto length = static_cast<uint32_t>(text.size());
  std::string frame(sizeof length, '\0');
  std::memcpy(frame.data(), &length, sizeof length);
  return frame + text;
}

}  // namespace

ControlLink::ControlLink(Fd socket, std::chrono::milliseconds heartbeat)
    : socket_(std::move(socket)),
      heartbeat_(heartbeat),
      spoken_(Clock::now()),
      served_(spoken_),
      end_(spoken_ + heartbeat) {}

void ControlLink::send(const Json& message) {
  if (!lost_.empty()) return;
  out_ += framed(json_line(message));
  write_some();
}

pollfd ControlLink::to_poll() const {
  return {lost_.empty() ? socket_.get() : -1, static_cast<short>(out_.empty() ? POLLIN : POLLIN | POLLOUT), 0};
}

int ControlLink::timeout_ms() const {
  if (!lost_.empty()) return 1'000'000;
  return std::min(ms_until(spoken_ + heartbeat_ / 3), ms_until(end_));
}

std::vector<Json> ControlLink::serve() {
  std::vector<Json> messages;
  if (!lost_.empty()) return messages;
  read_some();
  uint32_t length = 0;
  while (in_.size() >= sizeof length) {
    std::memcpy(&length, in_.data(), sizeof length);
    if (length > kMaxMessageBytes) {
      lost_ = "it sent what is no message";
      break;
    }
    if (in_.size() < sizeof length + length) break;
    const std::string text = in_.substr(sizeof length, length);
    in_.erase(0, sizeof length + length);
    if (!text.empty()) messages.push_back(read_json(text));
  }
  const auto now = Clock::now();
  // A process that was stopped, or had no CPU time, heard nothing meanwhile. The other end, which may be on the same machine,
  // has time for a beat, once in each silence.
  if (now >= served_ + heartbeat_ / 2 && !has_extended_) {
    has_extended_ = true;
    end_ = std::max(end_, now + heartbeat_ / 2);
  }
  served_ = now;
  if (now >= spoken_ + heartbeat_ / 3) {
    if (out_.empty()) out_ += framed("");
    spoken_ = now;
  }
  write_some();
  if (lost_.empty() && now >= end_)
    lost_ = ddh::str("nothing was heard of it for ", std::chrono::duration<double>(heartbeat_).count(),
                     " s (launch.heartbeat)");
  return messages;
}

void ControlLink::flush(Clock::time_point deadline) {
  while (lost_.empty() && !out_.empty() && Clock::now() < deadline) {
    pollfd set{socket_.get(), POLLOUT, 0};
    ::poll(&set, 1, ms_until(deadline));
    write_some();
  }
}

void ControlLink::finish(Clock::time_point deadline) {
  flush(deadline);
  ::shutdown(socket_.get(), SHUT_WR);
  while (lost_.empty() && Clock::now() < deadline) {
    pollfd set{socket_.get(), POLLIN, 0};
    ::poll(&set, 1, ms_until(deadline));
    read_some();
    in_.clear();
  }
}

void ControlLink::write_some() {
  while (!out_.empty()) {
    const ssize_t n = ::send(socket_.get(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) {
      lost_ = "its connection has ended";
      return;
    }
    spoken_ = Clock::now();
    out_.erase(0, static_cast<size_t>(n));
  }
}

void ControlLink::read_some() {
  std::array<char, 16384> chunk{};
  const ssize_t n = ::recv(socket_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
  if (n > 0) {
    hear(heartbeat_);
    in_.append(chunk.data(), static_cast<size_t>(n));
  } else if (n == 0 || (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)) {
    lost_ = "its connection has ended";
  }
}

}  // namespace ddhost
