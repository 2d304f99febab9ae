// SPDX-License-Identifier: Apache-2.0
//
// launch/kv.cpp: the in-process store, and both ends of the store's socket.
#include "launch/kv.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr uint32_t kSet = 1;
constexpr uint32_t kGet = 2;
constexpr uint32_t kAdd = 3;
constexpr uint32_t kErase = 4;

constexpr uint32_t kFound = 0;
constexpr uint32_t kNotYet = 1;
constexpr uint32_t kAborted = 2;
constexpr uint32_t kRefused = 16;  // and the ddh_rc

struct Request {
  uint32_t op, key_bytes, value_bytes_or_ms;
};
struct Reply {
  uint32_t status, bytes;
};

// The time for which one get holds the client's socket before other threads get a turn.
constexpr std::chrono::milliseconds kSlice{20};

template <class Head>
std::string packed(const Head& head, const std::string& a, const std::string& b) {
  std::string message(sizeof head, '\0');
  std::memcpy(message.data(), &head, sizeof head);
  return message + a + b;
}

[[noreturn]] void fail_gone() {
  ddh::fail(DDH_UNAVAILABLE, "the launcher of this run has ended, so the key-value store of the ranks is gone");
}

void write_all(int fd, const std::string& message) {
  size_t done = 0;
  while (done < message.size()) {
    const ssize_t n = ::send(fd, message.data() + done, message.size() - done, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_gone();
    done += static_cast<size_t>(n);
  }
}

std::string read_exactly(int fd, size_t bytes) {
  std::string text(bytes, '\0');
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::recv(fd, text.data() + done, bytes - done, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_gone();
    done += static_cast<size_t>(n);
  }
  return text;
}

void check_kv_size(const std::string& key, const std::string& value) {
  if (key.empty() || key.size() > kMaxKvKeyBytes)
    ddh::fail(DDH_INVALID_ARGUMENT, "a kv key has ", key.size(), " bytes; it takes 1 to ", kMaxKvKeyBytes);
  if (value.size() > kMaxKvBytes)
    ddh::fail(DDH_OUT_OF_RANGE, "the kv value '", key, "' has ", value.size(), " bytes; kv takes at most ",
              kMaxKvBytes);
}

[[noreturn]] void fail_kv_timeout(const std::string& key, std::chrono::milliseconds timeout) {
  ddh::fail(DDH_DEADLINE_EXCEEDED, "no rank has set the kv key '", key, "' within ", timeout.count(),
            " ms; another rank is stuck or never reached this call");
}

struct Answer {
  uint32_t status;
  std::string text;
};

Answer exchange(int fd, const std::string& request) {
  write_all(fd, request);
  Reply reply;
  std::memcpy(&reply, read_exactly(fd, sizeof reply).data(), sizeof reply);
  return {reply.status, read_exactly(fd, reply.bytes)};
}

std::string require_done(Answer answer) {
  if (answer.status >= kRefused) ddh::fail(static_cast<ddh_rc>(answer.status - kRefused), answer.text);
  return std::move(answer.text);
}

std::string text_of(int64_t number) {
  std::string text(sizeof number, '\0');
  std::memcpy(text.data(), &number, sizeof number);
  return text;
}

// `text` has its size.
int64_t number_in(const std::string& text) {
  int64_t number = 0;
  std::memcpy(&number, text.data(), sizeof number);
  return number;
}

}  // namespace

void KvLocal::set(const std::string& key, const std::string& value) {
  check_kv_size(key, value);
  const std::lock_guard lock(mutex_);
  values_.set(key, value);
  changed_.notify_all();
}

std::string KvLocal::get(const std::string& key, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::unique_lock lock(mutex_);
  const bool ended =
      changed_.wait_until(lock, deadline, [&] { return !abort_reason_.empty() || values_.find(key) != nullptr; });
  if (const std::string* const value = values_.find(key)) return *value;
  if (ended) ddh::fail(DDH_ABORTED, abort_reason_);
  fail_kv_timeout(key, timeout);
}

int64_t KvLocal::add(const std::string& key, int64_t delta) {
  check_kv_size(key, "");
  const std::lock_guard lock(mutex_);
  return values_.add(key, delta);
}

void KvLocal::erase(const std::string& key) {
  const std::lock_guard lock(mutex_);
  values_.erase(key);
}

void KvLocal::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  abort_reason_ = reason;
  changed_.notify_all();
}

Fd::~Fd() { reset(); }
void Fd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

SocketPair make_socket_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "can't create a socket pair for a rank: ", std::strerror(errno),
              "; raise the limit of open files (ulimit -n) or start fewer ranks");
  return {Fd(fds[0]), Fd(fds[1])};
}

void FairMutex::lock() {
  std::unique_lock lock(mutex_);
  const uint64_t ticket = next_++;
  changed_.wait(lock, [&] { return served_ == ticket; });
}

void FairMutex::unlock() {
  const std::lock_guard lock(mutex_);
  ++served_;
  changed_.notify_all();
}

void KvClient::set(const std::string& key, const std::string& value) {
  check_kv_size(key, value);
  const Request head{kSet, static_cast<uint32_t>(key.size()), static_cast<uint32_t>(value.size())};
  const std::lock_guard lock(mutex_);
  require_done(exchange(socket_.get(), packed(head, key, value)));
}

int64_t KvClient::add(const std::string& key, int64_t delta) {
  check_kv_size(key, "");
  const Request head{kAdd, static_cast<uint32_t>(key.size()), sizeof delta};
  const std::lock_guard lock(mutex_);
  return number_in(require_done(exchange(socket_.get(), packed(head, key, text_of(delta)))));
}

void KvClient::erase(const std::string& key) {
  check_kv_size(key, "");
  const Request head{kErase, static_cast<uint32_t>(key.size()), 0};
  const std::lock_guard lock(mutex_);
  require_done(exchange(socket_.get(), packed(head, key, "")));
}

std::string KvClient::get(const std::string& key, std::chrono::milliseconds timeout) {
  check_kv_size(key, "");
  const auto deadline = KvServer::Clock::now() + timeout;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - KvServer::Clock::now());
    const auto slice = std::clamp(left, std::chrono::milliseconds{0}, kSlice);
    const Request head{kGet, static_cast<uint32_t>(key.size()), static_cast<uint32_t>(slice.count())};
    Answer answer{};
    {
      const std::lock_guard lock(mutex_);
      answer = exchange(socket_.get(), packed(head, key, ""));
    }
    if (answer.status == kFound) return answer.text;
    if (answer.status == kAborted) ddh::fail(DDH_ABORTED, answer.text);
    if (left <= slice) fail_kv_timeout(key, timeout);
  }
}

KvServer::KvServer(std::vector<Fd> sockets) {
  for (Fd& socket : sockets) peers_.push_back({std::move(socket), "", "", {}});
}

std::vector<pollfd> KvServer::poll_set() const {
  std::vector<pollfd> set;
  for (const Peer& peer : peers_)
    set.push_back({peer.socket.get(), static_cast<short>(peer.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
  return set;
}

int KvServer::timeout_ms() const {
  int64_t shortest = -1;
  for (const Peer& peer : peers_) {
    if (!peer.wait.open) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(peer.wait.deadline - Clock::now()).count();
    shortest = shortest < 0 ? std::max<int64_t>(left, 0) : std::min(shortest, std::max<int64_t>(left, 0));
  }
  return static_cast<int>(shortest);
}

void KvServer::serve(const std::vector<pollfd>& polled) {
  for (size_t i = 0; i < peers_.size(); ++i) {
    if ((polled[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(peers_[i]);
    handle_requests(peers_[i]);
  }
  answer_waits();
  for (Peer& peer : peers_) flush(peer);
}

void KvServer::abort(const std::string& reason) {
  abort_reason_ = reason;
  answer_waits();
  for (Peer& peer : peers_) flush(peer);
}

void KvServer::read_from(Peer& peer) {
  // What is left is read after the next poll, so a fast sender does not keep the launcher here.
  std::array<char, 1 << 17> chunk;  // NOLINT(cppcoreguidelines-pro-type-member-init): recv fills it
  const ssize_t n = ::recv(peer.socket.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
  if (n > 0)
    peer.in.append(chunk.data(), static_cast<size_t>(n));
  else if (n == 0 || (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK))
    peer = Peer{};  // the rank has ended
}

void KvServer::handle_requests(Peer& peer) {
  // A client sends its next request after the reply, so no request follows an open wait.
  Request head;
  while (!peer.wait.open && peer.in.size() >= sizeof head) {
    std::memcpy(&head, peer.in.data(), sizeof head);
    const size_t value_bytes = head.op == kGet ? 0 : head.value_bytes_or_ms;
    const bool is_known = head.op >= kSet && head.op <= kErase;
    if (!is_known || head.key_bytes > kMaxKvKeyBytes || value_bytes > kMaxKvBytes ||
        (head.op == kAdd && value_bytes != sizeof(int64_t))) {
      peer = Peer{};  // invalid protocol: a plugin wrote to the socket
      return;
    }
    const size_t total = sizeof head + head.key_bytes + value_bytes;
    if (peer.in.size() < total) return;
    const std::string key = peer.in.substr(sizeof head, head.key_bytes);
    if (head.op == kGet)
      peer.wait = {true, key, Clock::now() + std::chrono::milliseconds(head.value_bytes_or_ms)};
    else
      peer.out += answer(head.op, key, peer.in.substr(sizeof head + head.key_bytes, value_bytes));
    peer.in.erase(0, total);
  }
}

std::string KvServer::answer(uint32_t op, const std::string& key, const std::string& value) {
  try {
    std::string result;
    if (op == kSet) values_.set(key, value);
    if (op == kAdd) result = text_of(values_.add(key, number_in(value)));
    if (op == kErase) values_.erase(key);
    return packed(Reply{kFound, static_cast<uint32_t>(result.size())}, result, "");
  } catch (const ddh::Error& error) {
    const std::string sentence = error.what();
    return packed(Reply{kRefused + static_cast<uint32_t>(error.code()), static_cast<uint32_t>(sentence.size())},
                  sentence, "");
  }
}

void KvServer::answer_waits() {
  const auto now = Clock::now();
  for (Peer& peer : peers_) {
    if (!peer.wait.open) continue;
    if (const std::string* const value = values_.find(peer.wait.key)) {
      peer.out += packed(Reply{kFound, static_cast<uint32_t>(value->size())}, *value, "");
    } else if (!abort_reason_.empty()) {
      peer.out += packed(Reply{kAborted, static_cast<uint32_t>(abort_reason_.size())}, abort_reason_, "");
    } else if (now >= peer.wait.deadline) {
      peer.out += packed(Reply{kNotYet, 0}, "", "");
    } else {
      continue;
    }
    peer.wait.open = false;
  }
}

void KvServer::flush(Peer& peer) {
  while (!peer.out.empty() && peer.socket.get() >= 0) {
    const ssize_t n = ::send(peer.socket.get(), peer.out.data(), peer.out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // full: poll again; closed: the next read reports it
    peer.out.erase(0, static_cast<size_t>(n));
  }
}

}  // namespace ddhost
