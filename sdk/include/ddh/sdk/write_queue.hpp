// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/write_queue.hpp: what a monitor writes, in the order in which it was given, by a thread of the monitor. A slow disk
// or database then slows no step until the queue is full. The thread waits a tenth of a second for more before it writes, so
// that short steps do not wake it each time. A function that fails ends the work: none runs after it, and the next call throws
// its error.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class WriteQueue {
 public:
  // Runs what was put since the last call, by calling `run_all`: for example between the begin and the end of a transaction.
  using Together = std::function<void(const std::function<void()>& run_all)>;

  // `together` null: functions run one by one. `most`: that wait at a time, at least 1.
  explicit WriteQueue(Together together = nullptr, size_t most = 256)
      : most_(most), together_(std::move(together)), thread_([this] { work(); }) {}
  WriteQueue(const WriteQueue&) = delete;
  WriteQueue& operator=(const WriteQueue&) = delete;
  // Waits until all has been written. An error that no call has thrown is lost.
  ~WriteQueue() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    given_.notify_one();
    thread_.join();
  }

  // Waits while the queue is full. Throws if an earlier function has failed. `write` owns what it needs.
  void put(std::function<void()> write) {
    std::unique_lock lock(mutex_);
    taken_.wait(lock, [this] { return waiting_.size() < most_ || failure_ != nullptr; });
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    waiting_.push_back(std::move(write));
    if (waiting_.size() == 1 || waiting_.size() == most_) given_.notify_one();
  }

  // Returns when all that was put has been written. Throws if it could not be.
  void drain() {
    std::unique_lock lock(mutex_);
    ++drains_;
    given_.notify_one();
    taken_.wait(lock, [this] { return (waiting_.empty() && !is_writing_) || failure_ != nullptr; });
    --drains_;
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

 private:
  static constexpr std::chrono::milliseconds kGather{100};

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      given_.wait(lock, [this] { return !waiting_.empty() || ends_; });
      if (waiting_.empty()) return;
      given_.wait_for(lock, kGather, [this] { return waiting_.size() >= most_ || drains_ > 0 || ends_; });
      const std::deque<std::function<void()>> taken = std::exchange(waiting_, {});
      is_writing_ = true;
      taken_.notify_all();
      lock.unlock();
      std::exception_ptr failure;
      try {
        const auto run_all = [&taken] {
          for (const std::function<void()>& write : taken) write();
        };
        together_ ? together_(run_all) : run_all();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      is_writing_ = false;
      if (failure != nullptr) {
        failure_ = failure;
        waiting_.clear();
      }
      taken_.notify_all();
      if (failure_ != nullptr) return;
    }
  }

  const size_t most_;
  const Together together_;
  std::mutex mutex_;
  std::condition_variable given_, taken_;
  std::deque<std::function<void()>> waiting_;
  std::exception_ptr failure_;
  int drains_ = 0;
  bool is_writing_ = false, ends_ = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
