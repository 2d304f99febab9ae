// SPDX-License-Identifier: Apache-2.0
//
// launch/cluster/door.hpp: the listener of a run on several hosts. It lets in those who prove that they know the run's token,
// and limits what all others can take: connections, bytes and time.
#pragma once

#include <poll.h>

#include <chrono>
#include <list>
#include <string>
#include <vector>

#include "launch/cluster/address.hpp"
#include "launch/cluster/proof.hpp"

namespace ddhost {

// A connection whose other end has proved that it belongs to the run.
struct Guest {
  Fd socket;
  GuestKind kind;
  int task;
};

// Never blocks: call serve() with the result of poll() for poll_set().
class Door {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kMostStrangers = 64;
  static constexpr std::chrono::milliseconds kPatience{2000};

  Door(Listener listener, const Token& token) : listener_(std::move(listener)), token_(token) {}

  [[nodiscard]] const Endpoint& endpoint() const { return listener_.at; }
  [[nodiscard]] std::vector<pollfd> poll_set() const;
  // Milliseconds until a stranger is sent away; -1: there is none.
  [[nodiscard]] int timeout_ms() const;
  std::vector<Guest> serve(const std::vector<pollfd>& polled);
  // In a child, which shares the socket.
  void forget() { listener_.socket.reset(); }

 private:
  struct Stranger {
    Fd socket;
    Clock::time_point until;
    Hello hello;
    std::string in;
  };
  void accept_some();
  // Whether this one has become a guest, has gone, or still has to be heard.
  enum class Heard { kGuest, kGone, kWait };
  Heard hear(Stranger& stranger, Claim& claim) const;

  Listener listener_;
  Token token_;
  std::list<Stranger> strangers_;
};

// Connects and proves that this process belongs to the run.
struct Admission {
  std::optional<Fd> socket;
  std::string problem;  // if there is none
};
Admission enter(const Endpoint& endpoint, const Token& token, GuestKind kind, int task,
                std::chrono::steady_clock::time_point deadline);

}  // namespace ddhost
