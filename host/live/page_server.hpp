// SPDX-License-Identifier: Apache-2.0
//
// live/page_server.hpp: serves the page of a run in one thread. Everything that a client can make it use is bounded: the number
// of connections, the bytes and the time of a request, the time of an answer, and the processor time. docs/design.md says why
// this is no library.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launch/kv.hpp"
#include "live/cpu_budget.hpp"
#include "live/request.hpp"

namespace ddhost {

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

// How long a client may take, and how much processor time the two kinds of clients may use: strangers, until a request has
// shown the token, and viewers. Together they stay below 1 % of the run's.
struct PageLimits {
  std::chrono::milliseconds for_head{3000}, for_answer{10000}, for_news{15000}, between_states{1000};
  double share = 0.004;  // of the run's processor time, for each kind
};

class PageServer {
 public:
  using Clock = std::chrono::steady_clock;

  // `content` outlives the object. `address`: IP address of the listener.
  PageServer(Fd listener, std::string token, std::string address, PageContent& content, const PageLimits& limits = {});

  // Whether somebody looks at the page, or did in the last seconds.
  [[nodiscard]] bool is_viewed() const;
  // Until `stop` can be read.
  void serve(int stop);
  // After the content has ended: until the clients that were there have its last state, at most 3 s.
  void serve_last();
  // Closes the sockets: in a child process, whose they are not, or after an error.
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
    [[nodiscard]] bool is_viewer() const { return at != At::kHead && wanted.what != PageRequest::What::kRefused; }
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
  [[nodiscard]] bool go_on(Connection& one, Clock::time_point now);
  [[nodiscard]] bool has_left(Connection& one) const;
  void answer_waiting(Clock::time_point now);
  [[nodiscard]] bool answer(Connection& one, const PageContent::State& state, Clock::time_point now);
  // Viewers wait until there is processor time for them again; not after the run's end.
  [[nodiscard]] bool holds_viewers() const { return viewers_.is_exhausted() && !is_last_; }
  template <class Work>
  bool for_viewers(Work&& work);
  void begin_answer(Connection& one, int status, std::string_view type, Clock::time_point now);
  [[nodiscard]] bool has_viewers() const;
  template <class Keep>
  void keep_if(Keep&& keep);

  Fd listener_;
  const std::string token_, address_;
  PageContent& content_;
  const PageLimits limits_;
  std::vector<Connection> connections_;
  CpuBudget strangers_, viewers_;
  CpuBudget::Ns spent_on_viewers_{};  // in this turn
  CpuBudget::Ns of_run_{};            // when the budgets were credited
  Clock::time_point refreshed_{}, viewed_{}, credited_{};
  std::vector<pollfd> polled_;
  std::shared_ptr<const std::string> document_;  // of this turn
  bool has_stopped_ = false, is_last_ = false;
  bool holds_back_ = false;  // an answer that could be given waits for processor time
};

}  // namespace ddhost
