// SPDX-License-Identifier: Apache-2.0
//
// live/page_server.hpp: serves the page of a run in one thread. Everything that a client can make it use is bounded: the number
// of connections, the bytes and the time of a request, the time of an answer, and the processor time. docs/design.md says why
// this is no library. Its parts: the address (address.cpp), requests (request.cpp), the budget of processor time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launch/kv.hpp"

namespace ddhost {

struct PageAddress {
  std::string host;  // 127.0.0.1, ::1
  uint16_t port = 0;
  // "127.0.0.1:8000", "[::1]:8000"
  [[nodiscard]] std::string text() const;
};

// "127.0.0.1:0", "localhost:8000", "[::1]:0". Error: it is no address and port, or other hosts can reach it.
PageAddress parse_page_address(const std::string& text);

// A socket that listens there; sets the port if it is 0. Error: the port is in use, or not allowed.
Fd listen_for_page(PageAddress& at);

// 128 random bits, as 32 digits.
std::string random_token();

// The head of an HTTP request. The page has three addresses, so everything else is refused, also what another server would
// take: other methods, a body, two Host headers, folded lines. A head of more bytes is refused too; browsers send the cookies
// of every other server of this machine.
inline constexpr size_t kMostRequestBytes = size_t{16} << 10;

struct PageRequest {
  enum class What {
    kIncomplete,  // more bytes may follow
    kDocument,
    kScript,
    kState,    // a newer one than `after`
    kRefused,  // `status` says how
  };
  What what = What::kIncomplete;
  int status = 0;      // of HTTP: 400, 403, 404, 405, 431
  uint64_t after = 0;  // version that the client has; 0: none
};

// What the bytes of a connection ask for. `token`: the secret in the address. `address`: the IP address of the page, which is a
// name of the host as "localhost" is; others are refused, because a name of a foreign site may lead here (DNS rebinding).
PageRequest read_request(std::string_view bytes, std::string_view token, std::string_view address);

// The processor time that a thread may take for a purpose: a share of what the run takes. Who has spent more waits, so that a
// flood of requests takes nothing from the ranks.
class CpuBudget {
 public:
  using Ns = std::chrono::nanoseconds;

  // `burst`: what can be saved up, and what there is at the beginning.
  CpuBudget(double share, Ns burst) : share_(share), burst_(burst), left_(burst) {}

  void spend(Ns used) {
    left_ -= used;
    if (left_ <= Ns(0)) is_exhausted_ = true;
  }
  // `run`: processor time that the run has taken since the last call.
  void credit(Ns run) {
    left_ = std::min(burst_, left_ + Ns(static_cast<int64_t>(static_cast<double>(run.count()) * share_)));
    if (left_ >= burst_ / 4) is_exhausted_ = false;
  }
  // After it was exhausted, there is a quarter of the burst first, so that the thread does not wake up for each small piece.
  [[nodiscard]] bool is_exhausted() const { return is_exhausted_; }

  // The processor time of the calling thread.
  static Ns of_this_thread() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + Ns(time.tv_nsec);
  }

 private:
  double share_;
  Ns burst_, left_;
  bool is_exhausted_ = false;
};

// What the page shows. Called in the thread that serves.
class PageContent {
 public:
  struct State {
    std::shared_ptr<const std::string> body;  // null: none yet
    uint64_t version = 0;                     // counts from 1
    bool has_ended = false;                   // there will be no other
  };

  PageContent() = default;
  PageContent(const PageContent&) = delete;
  PageContent& operator=(const PageContent&) = delete;
  virtual ~PageContent() = default;

  [[nodiscard]] virtual State state() const = 0;
  // Looks at the run again.
  virtual void refresh() = 0;
  // The whole page, with the body of state().
  [[nodiscard]] virtual std::string document() const = 0;
  [[nodiscard]] virtual std::string_view script() const = 0;
  // The processor time that the processes of the run have taken, of those that live.
  [[nodiscard]] virtual CpuBudget::Ns cpu_time() const = 0;
};

class PageServer {
 public:
  using Clock = std::chrono::steady_clock;

  // `content` outlives the object. `address`: IP address of the listener.
  PageServer(Fd listener, std::string token, std::string address, PageContent& content);

  // Whether somebody looks at the page, or did in the last seconds.
  [[nodiscard]] bool is_viewed() const;
  // Until `stop` can be read.
  void serve(int stop);
  // After the content has ended: until the clients that were there have its last state, at most 3 s.
  void serve_last();
  // In a child process: closes the sockets, which are the launcher's.
  void forget();

 private:
  struct Connection {
    Fd socket;
    std::string head;  // that was read
    enum class At { kHead, kWaiting, kWriting } at = At::kHead;
    PageRequest wanted;
    Clock::time_point deadline;
    std::string answer;                       // head, and body if `body` is null
    std::shared_ptr<const std::string> body;  // shared with other connections
    size_t sent = 0;
  };

  void turn(int stop, Clock::time_point end);
  [[nodiscard]] int wait_ms(Clock::time_point now, Clock::time_point end);
  void credit_budgets(Clock::time_point now);
  void accept_some(Clock::time_point now);
  // The place for a new connection: of one that has not asked for anything yet, if there is no other.
  void make_room();
  // Each returns whether the connection goes on.
  [[nodiscard]] bool read_head(Connection& one, Clock::time_point now);
  [[nodiscard]] bool write(Connection& one);
  [[nodiscard]] bool has_left(Connection& one) const;
  void answer_waiting(Clock::time_point now);
  void begin_answer(Connection& one, int status, std::string_view type, Clock::time_point now);
  [[nodiscard]] bool has_viewers() const;
  template <class Keep>
  void keep_if(Keep&& keep);

  Fd listener_;
  const std::string token_, address_;
  PageContent& content_;
  std::vector<Connection> connections_;
  CpuBudget strangers_, viewers_;
  CpuBudget::Ns spent_on_viewers_{};  // in this turn
  CpuBudget::Ns of_run_{};            // when the budgets were credited
  Clock::time_point refreshed_{}, viewed_{}, credited_{};
  std::vector<pollfd> polled_;
  bool has_stopped_ = false;
};

}  // namespace ddhost
