// SPDX-License-Identifier: Apache-2.0
//
// Reads and writes on two threads, and the results that both engines pass between threads.
#include <unistd.h>

#include <array>
#include <cerrno>
#include <deque>

#include "io_engines.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

void IoResults::begin(uint32_t tag) {
  const std::lock_guard lock(mutex_);
  done_[tag] = false;
}

void IoResults::end(uint32_t tag, int64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    results_[tag] = {bytes, std::chrono::steady_clock::now()};
    done_[tag] = true;
  }
  op_ends_.notify_all();
}

IoEngine::Result IoResults::wait(uint32_t tag) {
  std::unique_lock lock(mutex_);
  op_ends_.wait(lock, [&] { return done_[tag]; });
  return results_[tag];
}

namespace {
class ThreadIo final : public IoEngine {
 public:
  ThreadIo(int fd, uint32_t depth);
  ThreadIo(const ThreadIo&) = delete;
  ThreadIo& operator=(const ThreadIo&) = delete;
  ~ThreadIo() override;
  [[nodiscard]] std::string name() const override { return "pread"; }

  void start(uint32_t tag, const IoOp& op) override;
  Result finish(uint32_t tag) override { return results_.wait(tag); }

 private:
  void work();

  const int fd_;
  IoResults results_;
  std::mutex mutex_;
  std::condition_variable work_comes_;
  std::deque<std::pair<uint32_t, IoOp>> queue_;
  bool ends_ = false;
  std::array<std::thread, 2> threads_;  // one reads while the other writes
};

ThreadIo::ThreadIo(int fd, uint32_t depth) : fd_(fd), results_(depth) {
  for (std::thread& t : threads_) t = quiet_thread([this] { work(); });
}

ThreadIo::~ThreadIo() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  work_comes_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void ThreadIo::start(uint32_t tag, const IoOp& op) {
  results_.begin(tag);
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({tag, op});
  }
  work_comes_.notify_one();
}

void ThreadIo::work() {
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

}  // namespace

std::unique_ptr<IoEngine> make_thread_io(int fd, uint32_t depth) { return std::make_unique<ThreadIo>(fd, depth); }

}  // namespace DDH_HIDDEN
}  // namespace ddh
