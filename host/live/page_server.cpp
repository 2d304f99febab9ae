// SPDX-License-Identifier: Apache-2.0
#include "live/page_server.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

using namespace std::chrono_literals;

constexpr size_t kMostConnections = 16;
constexpr auto kStrangersBurst = 4ms, kViewersBurst = 30ms;
constexpr auto kBetweenCredits = 250ms;

const char* reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Not Found";
  }
}

}  // namespace

PageServer::PageServer(Fd listener, std::string token, std::string address, PageContent& content,
                       const PageLimits& limits)
    : listener_(std::move(listener)),
      token_(std::move(token)),
      address_(std::move(address)),
      content_(content),
      limits_(limits),
      strangers_(limits.share, kStrangersBurst),
      viewers_(limits.share, kViewersBurst) {
  connections_.reserve(kMostConnections);
}

void PageServer::forget() {
  listener_.reset();
  connections_.clear();
}

void PageServer::serve(int stop) {
  has_stopped_ = false;
  while (!has_stopped_) turn(stop, Clock::time_point::max());
}

void PageServer::serve_last() {
  constexpr auto kLeast = 1s, kMost = 3s;
  is_last_ = true;
  const Clock::time_point now = Clock::now();
  const Clock::time_point least = now + kLeast, most = now + kMost;
  while (Clock::now() < (has_viewers() ? most : least)) turn(-1, Clock::now() + 50ms);
}

bool PageServer::is_viewed() const {
  constexpr auto kLately = 5s;
  return has_viewers() || Clock::now() - viewed_ < kLately;
}

bool PageServer::has_viewers() const {
  return std::any_of(connections_.begin(), connections_.end(), [](const Connection& one) { return one.is_viewer(); });
}

// The time until something is due.
int PageServer::wait_ms(Clock::time_point now, Clock::time_point end) {
  constexpr auto kLongest = 60s;
  Clock::time_point due = std::min(now + kLongest, end);
  bool waits_for_state = false;
  for (const Connection& one : connections_) {
    const bool is_waiting = one.at == Connection::At::kWaiting;
    waits_for_state |= is_waiting;
    if (!is_waiting || !holds_viewers()) due = std::min(due, one.deadline);
  }
  if (strangers_.is_exhausted() || (holds_viewers() && has_viewers())) due = std::min(due, now + kBetweenCredits);
  if (waits_for_state && !holds_viewers()) due = std::min(due, holds_back_ ? now : refreshed_ + limits_.between_states);
  return static_cast<int>(std::max<int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(due - now).count()));
}

void PageServer::turn(int stop, Clock::time_point end) {
  Clock::time_point now = Clock::now();
  credit_budgets(now);  // no client makes it do so, and it is bounded
  const CpuBudget::Ns before = CpuBudget::of_this_thread();
  spent_on_viewers_ = 0ns;
  const bool takes_strangers = !strangers_.is_exhausted();
  polled_.clear();
  for (const Connection& one : connections_) {
    const bool is_polled = one.is_viewer() ? !holds_viewers() : one.at == Connection::At::kWriting || takes_strangers;
    const short events = one.at == Connection::At::kWriting ? POLLOUT : POLLIN;
    polled_.push_back({is_polled ? one.socket.get() : -1, events, 0});
  }
  polled_.push_back({stop, POLLIN, 0});
  polled_.push_back({takes_strangers ? listener_.get() : -1, POLLIN, 0});
  ::poll(polled_.data(), polled_.size(), wait_ms(now, end));
  now = Clock::now();
  const bool has_guest = polled_.back().revents != 0;
  has_stopped_ = polled_[polled_.size() - 2].revents != 0;
  size_t i = 0;
  keep_if([&](Connection& one) {
    const bool is_ready = polled_[i++].revents != 0;
    if (now >= one.deadline && one.at != Connection::At::kWaiting) return false;
    if (!is_ready) return true;
    return one.is_viewer() ? for_viewers([&] { return go_on(one, now); }) : go_on(one, now);
  });
  if (has_guest) accept_some(now);
  answer_waiting(now);
  strangers_.spend(CpuBudget::of_this_thread() - before - spent_on_viewers_);
}

bool PageServer::go_on(Connection& one, Clock::time_point now) {
  if (one.at == Connection::At::kHead) return read_head(one, now);
  return one.at == Connection::At::kWriting ? write(one) : !has_left(one);
}

// Does something for one of them, and counts the processor time.
template <class Work>
bool PageServer::for_viewers(Work&& work) {
  const CpuBudget::Ns before = CpuBudget::of_this_thread();
  const bool result = work();
  const CpuBudget::Ns used = CpuBudget::of_this_thread() - before;
  viewers_.spend(used);
  spent_on_viewers_ += used;
  return result;
}

void PageServer::credit_budgets(Clock::time_point now) {
  if (now - credited_ < kBetweenCredits) return;
  const auto passed = credited_ == Clock::time_point() ? 0ns : CpuBudget::Ns(now - credited_);
  credited_ = now;
  const CpuBudget::Ns before = std::exchange(of_run_, content_.cpu_time());
  const CpuBudget::Ns taken = std::max(0ns, of_run_ - before);
  strangers_.credit(taken, passed);
  viewers_.credit(taken, passed);
}

template <class Keep>
void PageServer::keep_if(Keep&& keep) {
  // std::remove_if may move an element before it asks, so the connections that end are marked first.
  std::vector<bool> stays;
  stays.reserve(connections_.size());
  for (Connection& one : connections_) stays.push_back(keep(one));
  size_t to = 0;
  for (size_t from = 0; from < stays.size(); ++from) {
    if (!stays[from]) continue;
    if (to != from) std::swap(connections_[to], connections_[from]);
    ++to;
  }
  connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(to), connections_.end());
}

void PageServer::accept_some(Clock::time_point now) {
  constexpr int kAtOnce = 8;
  for (int i = 0; i < kAtOnce; ++i) {
    Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() < 0) return;
    make_room();
    Connection one;
    one.socket = std::move(socket);
    one.deadline = now + limits_.for_head;
    connections_.push_back(std::move(one));
    if (!read_head(connections_.back(), now)) connections_.pop_back();
  }
}

void PageServer::make_room() {
  if (connections_.size() < kMostConnections) return;
  const auto older = [](const Connection& a, const Connection& b) {
    const bool a_asks = a.at != Connection::At::kHead, b_asks = b.at != Connection::At::kHead;
    return a_asks != b_asks ? b_asks : a.deadline < b.deadline;
  };
  connections_.erase(std::min_element(connections_.begin(), connections_.end(), older));
}

bool PageServer::read_head(Connection& one, Clock::time_point now) {
  std::array<char, 4096> part;
  for (;;) {
    const ssize_t n = ::recv(one.socket.get(), part.data(), part.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    if (n == 0) return false;
    one.head.append(part.data(), static_cast<size_t>(n));
    one.wanted = read_request(one.head, token_, address_);
    if (one.wanted.what != PageRequest::What::kIncomplete) break;
    if (n < static_cast<ssize_t>(part.size())) return true;
  }
  std::string().swap(one.head);
  if (one.wanted.what == PageRequest::What::kRefused) {
    begin_answer(one, one.wanted.status, "text/plain", now);
    return write(one);
  }
  viewed_ = now;
  one.at = Connection::At::kWaiting;
  one.deadline = now + limits_.for_news;
  return true;
}

// A client that waits sends nothing more.
bool PageServer::has_left(Connection& one) const {
  char byte = 0;
  const ssize_t n = ::recv(one.socket.get(), &byte, 1, MSG_PEEK);
  return n >= 0 || (errno != EAGAIN && errno != EINTR);
}

void PageServer::begin_answer(Connection& one, int status, std::string_view type, Clock::time_point now) {
  const size_t bytes = one.body ? one.body->size() : 0;
  one.answer = ddh::str("HTTP/1.1 ", status, " ", reason(status), "\r\nConnection: close\r\n");
  if (status != 204) one.answer += ddh::str("Content-Length: ", bytes, "\r\n");
  if (status < 300) {
    const PageContent::State state = content_.state();
    one.answer +=
        ddh::str("Content-Type: ", type, "; charset=utf-8\r\nX-Version: ", state.version,
                 "\r\nX-Run: ", state.has_ended ? "ended" : "live",
                 "\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
                 "X-Frame-Options: DENY\r\nCross-Origin-Resource-Policy: same-origin\r\n");
  }
  one.answer += "\r\n";
  one.at = Connection::At::kWriting;
  one.deadline = now + limits_.for_answer;
  one.sent = 0;
}

bool PageServer::write(Connection& one) {
  const size_t head = one.answer.size(), all = head + (one.body ? one.body->size() : 0);
  while (one.sent < all) {
    const bool is_head = one.sent < head;
    const char* const from = is_head ? one.answer.data() + one.sent : one.body->data() + (one.sent - head);
    const size_t bytes = is_head ? head - one.sent : all - one.sent;
    const ssize_t n = ::send(one.socket.get(), from, bytes, MSG_NOSIGNAL | (is_head && all > head ? MSG_MORE : 0));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    one.sent += static_cast<size_t>(n);
  }
  ::shutdown(one.socket.get(), SHUT_WR);
  return false;
}

void PageServer::answer_waiting(Clock::time_point now) {
  holds_back_ = false;
  const auto waits = [](const Connection& one) { return one.at == Connection::At::kWaiting; };
  if (std::none_of(connections_.begin(), connections_.end(), waits)) return;
  const bool is_due = now >= refreshed_ + limits_.between_states && !holds_viewers();
  if (is_due && !content_.state().has_ended) {
    for_viewers([&] {
      content_.refresh();
      return true;
    });
    refreshed_ = now;
  }
  const PageContent::State state = content_.state();
  keep_if([&](Connection& one) {
    if (one.at != Connection::At::kWaiting) return true;
    holds_back_ = holds_back_ || holds_viewers();
    return holds_viewers() || for_viewers([&] { return answer(one, state, now); });
  });
  document_.reset();
}

bool PageServer::answer(Connection& one, const PageContent::State& state, Clock::time_point now) {
  const bool is_document = one.wanted.what == PageRequest::What::kDocument;
  if (one.wanted.what == PageRequest::What::kScript) {
    one.body = std::make_shared<const std::string>(content_.script());
    begin_answer(one, 200, "text/javascript", now);
  } else if (state.body && is_document) {
    if (!document_) document_ = std::make_shared<const std::string>(content_.document());
    one.body = document_;
    begin_answer(one, 200, "text/html", now);
  } else if (state.body && state.version > one.wanted.after) {
    one.body = state.body;
    begin_answer(one, 200, "text/html", now);
  } else if (now >= one.deadline || state.has_ended) {
    begin_answer(one, 204, "text/html", now);
  } else {
    return true;
  }
  return write(one);
}

}  // namespace ddhost
