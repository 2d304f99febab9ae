// SPDX-License-Identifier: Apache-2.0
//
// launch/kv.hpp: the key-value store of the ranks. For ranks that are threads it is in their process. For ranks that
// are processes the launcher stores the values and serves every rank over a socket pair that was created before the
// fork.
//
//   request   uint32 op, uint32 key bytes, uint32 value bytes or timeout in ms, key, value; add: value is an int64
//   reply     uint32 status, uint32 bytes, value or sentence
#pragma once

#include <poll.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/services/comm/kv.hpp"
#include "launch/kv_values.hpp"

namespace ddhost {

// For ranks that are threads of one process.
class KvLocal : public Kv {
 public:
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  int64_t add(const std::string& key, int64_t delta) override;
  void erase(const std::string& key) override;
  // Ends all current and later waits with DDH_ABORTED and this message.
  void abort(const std::string& reason);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  KvValues values_;
  std::string abort_reason_;
};

// A file descriptor that closes itself.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd();
  [[nodiscard]] int get() const { return fd_; }
  void reset();

 private:
  int fd_ = -1;
};

struct SocketPair {
  Fd server, client;
};
SocketPair make_socket_pair();

// A lock that threads get in the order in which they asked for it. A std::mutex may go to the same thread again and
// again while others wait for it.
class FairMutex {
 public:
  void lock();
  void unlock();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_ = 0, served_ = 0;  // tickets
};

// A rank's end of the socket. Several threads take turns; a waiting get lets others run every few milliseconds.
class KvClient : public Kv {
 public:
  explicit KvClient(Fd socket) : socket_(std::move(socket)) {}
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  int64_t add(const std::string& key, int64_t delta) override;
  void erase(const std::string& key) override;

 private:
  FairMutex mutex_;
  Fd socket_;
};

// The launcher's end. Never blocks: call serve() with the result of poll() for poll_set().
class KvServer {
 public:
  using Clock = std::chrono::steady_clock;

  explicit KvServer(std::vector<Fd> sockets);
  // The descriptors to poll, one for each client; fd = -1 after it has ended.
  [[nodiscard]] std::vector<pollfd> poll_set() const;
  // Milliseconds until a wait times out; -1: none is open.
  [[nodiscard]] int timeout_ms() const;
  void serve(const std::vector<pollfd>& polled);
  // A rank on another host.
  void add(Fd socket) { peers_.push_back({std::move(socket), "", "", {}}); }
  // Ends all current and later waits with this message.
  void abort(const std::string& reason);

 private:
  struct Wait {
    bool open = false;
    std::string key;
    Clock::time_point deadline;
  };
  struct Peer {
    Fd socket;
    std::string in, out;
    Wait wait;
  };
  void read_from(Peer& peer);
  void handle_requests(Peer& peer);
  std::string answer(uint32_t op, const std::string& key, const std::string& value);
  void answer_waits();
  static void flush(Peer& peer);

  std::vector<Peer> peers_;
  KvValues values_;
  std::string abort_reason_;
};

}  // namespace ddhost
