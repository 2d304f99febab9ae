// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/file_io.hpp: reads and writes of one file that go on beside the caller: with io_uring, or by two threads with
// pread and pwrite where that is not to be had (containers often forbid it).
//
// io_uring is compiled in where DDH_WITH_LIBURING is defined (link liburing).
#pragma once

#include <pthread.h>
#include <signal.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#ifdef DDH_WITH_LIBURING
#include <liburing.h>
#endif

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

struct IoOp {
  bool is_write = false;
  void* buffer = nullptr;
  uint64_t bytes = 0;
  uint64_t offset = 0;
};

// Tags name the operations under way: 0 .. depth - 1, each for one at a time.
class IoEngine {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Result {
    int64_t bytes = 0;  // moved, perhaps fewer than asked for; or -errno
    Time end{};         // when it was seen to be done
  };
  IoEngine() = default;
  IoEngine(const IoEngine&) = delete;
  IoEngine& operator=(const IoEngine&) = delete;
  virtual ~IoEngine() = default;  // nothing is under way
  [[nodiscard]] virtual std::string name() const = 0;
  virtual void start(uint32_t tag, const IoOp& op) = 0;
  virtual Result finish(uint32_t tag) = 0;  // waits
  // Buffers that many operations will use; a hint.
  virtual void register_buffers(std::span<const iovec>) {}
};

namespace detail {
// A thread that gets no signals: they are the main thread's.
template <class Body>
std::thread quiet_thread(Body&& body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::forward<Body>(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

// What came of the operations, from the thread that sees them end to the one that waits.
class IoResults {
 public:
  explicit IoResults(uint32_t depth) : results_(depth), done_(depth, true) {}
  void begin(uint32_t tag) {
    const std::lock_guard lock(mutex_);
    done_[tag] = false;
  }
  void end(uint32_t tag, int64_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      results_[tag] = {bytes, std::chrono::steady_clock::now()};
      done_[tag] = true;
    }
    op_ends_.notify_all();
  }
  IoEngine::Result wait(uint32_t tag) {
    std::unique_lock lock(mutex_);
    op_ends_.wait(lock, [&] { return done_[tag]; });
    return results_[tag];
  }

 private:
  std::mutex mutex_;
  std::condition_variable op_ends_;
  std::vector<IoEngine::Result> results_;  // per tag
  std::vector<bool> done_;
};
}  // namespace detail

class ThreadIo final : public IoEngine {
 public:
  ThreadIo(int fd, uint32_t depth) : fd_(fd), results_(depth) {
    for (std::thread& t : threads_) t = detail::quiet_thread([this] { work(); });
  }
  ThreadIo(const ThreadIo&) = delete;
  ThreadIo& operator=(const ThreadIo&) = delete;
  ~ThreadIo() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    work_comes_.notify_all();
    for (std::thread& t : threads_) t.join();
  }
  [[nodiscard]] std::string name() const override { return "pread"; }

  void start(uint32_t tag, const IoOp& op) override {
    results_.begin(tag);
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back({tag, op});
    }
    work_comes_.notify_one();
  }
  Result finish(uint32_t tag) override { return results_.wait(tag); }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_comes_.wait(lock, [&] { return ends_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const auto [tag, op] = queue_.front();
      queue_.pop_front();
      lock.unlock();
      const ssize_t n = op.is_write ? pwrite(fd_, op.buffer, op.bytes, static_cast<off_t>(op.offset))
                                    : pread(fd_, op.buffer, op.bytes, static_cast<off_t>(op.offset));
      results_.end(tag, n < 0 ? -errno : n);
      lock.lock();
    }
  }

  const int fd_;
  detail::IoResults results_;
  std::mutex mutex_;
  std::condition_variable work_comes_;
  std::deque<std::pair<uint32_t, IoOp>> queue_;
  bool ends_ = false;
  std::array<std::thread, 2> threads_;  // one reads while the other writes
};

#ifdef DDH_WITH_LIBURING
// A thread of its own sees operations end, so that it is known when.
class UringIo final : public IoEngine {
 public:
  UringIo(int fd, uint32_t depth) : fd_(fd), results_(depth) {
    const int rc = io_uring_queue_init(depth + 1, &ring_, 0);
    if (rc < 0) fail(DDH_UNAVAILABLE, std::strerror(-rc));
    io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
    const bool can = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                     io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
    io_uring_free_probe(probe);
    if (!can) {
      io_uring_queue_exit(&ring_);
      fail(DDH_UNAVAILABLE, "this kernel's is too old (Linux 5.6 has what it takes)");
    }
    reaper_ = detail::quiet_thread([this] { reap(); });
  }
  UringIo(const UringIo&) = delete;
  UringIo& operator=(const UringIo&) = delete;
  ~UringIo() override {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    io_uring_prep_nop(sqe);
    sqe->user_data = kEnd;
    submit();
    reaper_.join();
    io_uring_queue_exit(&ring_);
  }
  [[nodiscard]] std::string name() const override {
    return registered_.empty() ? "io_uring" : "io_uring with registered buffers";
  }

  // Refused where the limit of locked memory is low (ulimit -l): then they are mapped at every operation.
  void register_buffers(std::span<const iovec> buffers) override {
    if (io_uring_register_buffers(&ring_, buffers.data(), static_cast<unsigned>(buffers.size())) == 0)
      registered_.assign(buffers.begin(), buffers.end());
  }

  void start(uint32_t tag, const IoOp& op) override {
    results_.begin(tag);
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) fail(DDH_INTERNAL, "the submission queue of io_uring is full");
    const auto bytes = static_cast<unsigned>(op.bytes);
    const int fixed = registered_index(op);
    if (fixed >= 0 && op.is_write)
      io_uring_prep_write_fixed(sqe, fd_, op.buffer, bytes, op.offset, fixed);
    else if (fixed >= 0)
      io_uring_prep_read_fixed(sqe, fd_, op.buffer, bytes, op.offset, fixed);
    else if (op.is_write)
      io_uring_prep_write(sqe, fd_, op.buffer, bytes, op.offset);
    else
      io_uring_prep_read(sqe, fd_, op.buffer, bytes, op.offset);
    sqe->user_data = tag;
    const int rc = submit();
    if (rc < 0) fail(DDH_UNAVAILABLE, "io_uring takes no more work: ", std::strerror(-rc));
  }
  Result finish(uint32_t tag) override { return results_.wait(tag); }

 private:
  static constexpr uint64_t kEnd = UINT64_MAX;

  int submit() {
    int rc = 0;
    do {
      rc = io_uring_submit(&ring_);
    } while (rc == -EINTR || rc == -EAGAIN || rc == -EBUSY);
    return rc;
  }
  void reap() {
    for (uint64_t tag = 0; tag != kEnd;) {
      io_uring_cqe* cqe = nullptr;
      if (io_uring_wait_cqe(&ring_, &cqe) < 0) continue;  // interrupted
      tag = cqe->user_data;
      const int64_t result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      if (tag != kEnd) results_.end(static_cast<uint32_t>(tag), result);
    }
  }
  [[nodiscard]] int registered_index(const IoOp& op) const {
    const auto* from = static_cast<const char*>(op.buffer);
    for (size_t i = 0; i < registered_.size(); ++i) {
      const auto* base = static_cast<const char*>(registered_[i].iov_base);
      if (from >= base && from + op.bytes <= base + registered_[i].iov_len) return static_cast<int>(i);
    }
    return -1;
  }

  const int fd_;
  io_uring ring_{};
  detail::IoResults results_;
  std::vector<iovec> registered_;
  std::thread reaper_;
};
#endif

// `io`: "uring", "pread" or "auto" (uring, else pread with a warning). Throws where "uring" can't be had.
inline std::unique_ptr<IoEngine> make_io_engine(const Host& host, const std::string& io, int fd, uint32_t depth) {
  if (io == "pread") return std::make_unique<ThreadIo>(fd, depth);
  std::string why = "this plugin was built without liburing";
#ifdef DDH_WITH_LIBURING
  try {
    return std::make_unique<UringIo>(fd, depth);
  } catch (const Error& e) {
    why = e.what();
  }
#endif
  if (io == "uring")
    fail(DDH_UNAVAILABLE, "io=uring, but io_uring is not to be had: ", why, "; use io=auto or io=pread");
  host.log(DDH_LOG_WARN, "io_uring is not to be had (", why, "): files are read and written by threads with pread");
  return std::make_unique<ThreadIo>(fd, depth);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
