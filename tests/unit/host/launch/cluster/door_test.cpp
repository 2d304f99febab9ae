// SPDX-License-Identifier: Apache-2.0
//
// The listener of a run: who proves the token comes in; all others cost little and are sent away.
#include "launch/cluster/door.hpp"

#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>
#include <thread>

#include "launch/cluster/control_link.hpp"

using namespace ddhost;
using namespace std::chrono_literals;

namespace {

// A door on a thread of its own.
class ServedDoor {
 public:
  ServedDoor() : door_(listen_at("127.0.0.1", {}), token_), thread_([this] { loop(); }) {}
  ~ServedDoor() {
    stop_ = true;
    thread_.join();
  }
  [[nodiscard]] const Token& token() const { return token_; }
  [[nodiscard]] const Endpoint& endpoint() const { return door_.endpoint(); }
  size_t guests() {
    const std::lock_guard lock(mutex_);
    return guests_.size();
  }
  Guest take() {
    const std::lock_guard lock(mutex_);
    Guest guest = std::move(guests_.back());
    guests_.pop_back();
    return guest;
  }

 private:
  void loop() {
    while (!stop_) {
      std::vector<pollfd> set = door_.poll_set();
      ::poll(set.data(), set.size(), 5);
      for (Guest& guest : door_.serve(set)) {
        const std::lock_guard lock(mutex_);
        guests_.push_back(std::move(guest));
      }
    }
  }
  const Token token_ = Token::make();
  Door door_;
  std::mutex mutex_;
  std::vector<Guest> guests_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

Fd stranger(const Endpoint& at) { return *connect_to(at, std::chrono::steady_clock::now() + 2s); }
bool is_sent_away(const Fd& socket) {
  char byte = 0;
  for (;;) {
    pollfd set{socket.get(), POLLIN, 0};
    if (::poll(&set, 1, 5000) != 1) return false;
    if (::recv(socket.get(), &byte, 1, 0) <= 0) return true;
  }
}
Admission come(const ServedDoor& served, const Token& token) {
  return enter(served.endpoint(), token, GuestKind::kAgent, 3, std::chrono::steady_clock::now() + 5s);
}

}  // namespace

TEST_CASE("who knows the token comes in, and learns that the listener knows it too", "[door]") {
  ServedDoor served;
  const Admission in = come(served, served.token());
  REQUIRE(in.socket);
  while (served.guests() == 0) std::this_thread::sleep_for(1ms);
  const Guest guest = served.take();
  CHECK(guest.kind == GuestKind::kAgent);
  CHECK(guest.task == 3);
}

TEST_CASE("who does not know the token is sent away", "[door]") {
  ServedDoor served;
  CHECK(come(served, Token::make()).problem == "who listens there does not know the token of this run");
  CHECK(served.guests() == 0);
}

TEST_CASE("garbage, half a greeting and a greeting that was used before do not come in", "[door]") {
  ServedDoor served;
  const Fd garbage = stranger(served.endpoint());
  const std::string noise(4096, 'x');
  ::send(garbage.get(), noise.data(), noise.size(), MSG_NOSIGNAL);
  CHECK(is_sent_away(garbage));

  const Fd half = stranger(served.endpoint());
  ::send(half.get(), noise.data(), 10, MSG_NOSIGNAL);
  CHECK(is_sent_away(half));  // after Door::kPatience

  // A proof belongs to the listener's random number of its own connection.
  Hello first;
  const Fd overheard = stranger(served.endpoint());
  REQUIRE(::recv(overheard.get(), &first, sizeof first, MSG_WAITALL) == static_cast<ssize_t>(sizeof first));
  Claim claim{kWireVersion, GuestKind::kStore, 1, random_bytes(), {}};
  claim.proof = proof_of_claim(served.token(), first, claim);
  const Fd replay = stranger(served.endpoint());
  ::send(replay.get(), &claim, sizeof claim, MSG_NOSIGNAL);
  CHECK(is_sent_away(replay));
  CHECK(served.guests() == 0);
}

TEST_CASE("strangers who say nothing do not keep a guest out for long", "[door]") {
  ServedDoor served;
  std::vector<Fd> silent;
  for (size_t i = 0; i < 3 * Door::kMostStrangers; ++i) silent.push_back(stranger(served.endpoint()));
  const auto begin = std::chrono::steady_clock::now();
  const Admission in = enter(served.endpoint(), served.token(), GuestKind::kStore, 0, begin + 10 * Door::kPatience);
  CHECK(in.socket.has_value());
}

TEST_CASE("a token has one form, and proofs depend on it and on both random numbers", "[door]") {
  const Token token = Token::make();
  CHECK(Token::from_hex(token.hex()).bytes() == token.bytes());
  for (const std::string& text : {std::string(), std::string(63, 'a'), std::string(64, 'g'), std::string(64, 'A')})
    CHECK_THROWS(Token::from_hex(text));
  Hello hello;
  Claim claim;
  const Proof proof = proof_of_claim(token, hello, claim);
  CHECK(are_equal(proof, proof_of_claim(token, hello, claim)));
  CHECK_FALSE(are_equal(proof, proof_of_welcome(token, hello, claim)));
  CHECK_FALSE(are_equal(proof, proof_of_claim(Token::make(), hello, claim)));
  hello.nonce[31] ^= 1;
  CHECK_FALSE(are_equal(proof, proof_of_claim(token, hello, claim)));
  hello.nonce[31] ^= 1;
  claim.task = 1;
  CHECK_FALSE(are_equal(proof, proof_of_claim(token, hello, claim)));
}

TEST_CASE("a link carries messages, beats in silence, and notices an end that is silent or gone", "[door]") {
  SocketPair pair = make_socket_pair();
  ControlLink a(std::move(pair.server), 300ms);
  {
    ControlLink b(std::move(pair.client), 300ms);
    a.send({{"text", "x"}});
    a.send({{"number", 2}});
    std::vector<Json> got;
    const auto until = std::chrono::steady_clock::now() + 1s;  // longer than the heartbeat
    while (std::chrono::steady_clock::now() < until) {
      for (Json& message : b.serve()) got.push_back(std::move(message));
      static_cast<void>(a.serve());
      std::this_thread::sleep_for(20ms);
    }
    REQUIRE(got.size() == 2);
    CHECK(got[0] == Json{{"text", "x"}});
    CHECK(a.lost().empty());
    CHECK(b.lost().empty());
    while (b.lost().empty() && std::chrono::steady_clock::now() < until + 5s) {
      static_cast<void>(b.serve());
      std::this_thread::sleep_for(20ms);
    }
    CHECK(b.lost() == "nothing was heard of it for 0.3 s (launch.heartbeat)");
  }
  static_cast<void>(a.serve());
  CHECK(a.lost() == "its connection has ended");
}

TEST_CASE("a link that nobody served for a while gives its other end time for a beat, once", "[door]") {
  SocketPair pair = make_socket_pair();
  ControlLink late(std::move(pair.server), 300ms);
  ControlLink other(std::move(pair.client), 300ms);
  const auto serve_until = [&](auto when, bool both) {
    while (late.lost().empty() && std::chrono::steady_clock::now() < when) {
      if (both) static_cast<void>(other.serve());
      static_cast<void>(late.serve());
      std::this_thread::sleep_for(5ms);
    }
  };
  std::this_thread::sleep_for(400ms);  // as a process that is stopped
  const auto back = std::chrono::steady_clock::now();
  static_cast<void>(late.serve());
  CHECK(late.lost().empty());
  SECTION("a beat comes") {
    serve_until(back + 500ms, true);
    CHECK(late.lost().empty());
  }
  SECTION("no beat comes") {
    serve_until(back + 5s, false);
    CHECK(late.lost() == "nothing was heard of it for 0.3 s (launch.heartbeat)");
    CHECK(std::chrono::steady_clock::now() - back >= 150ms);
  }
  SECTION("no beat comes, and the process is stopped again") {
    std::this_thread::sleep_for(200ms);
    static_cast<void>(late.serve());
    CHECK_FALSE(late.lost().empty());
  }
  SECTION("more time was left") {
    late.set_heartbeat(300ms, 1s);
    const auto begin = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(200ms);
    serve_until(begin + 5s, false);
    CHECK(std::chrono::steady_clock::now() - begin >= 1s);
    CHECK_FALSE(late.lost().empty());
  }
}
