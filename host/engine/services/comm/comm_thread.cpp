// SPDX-License-Identifier: Apache-2.0
#include "engine/services/comm/comm_thread.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/clock.hpp"

namespace ddhost {

CommThread::CommThread(Clock& clock, const PluginCaller& caller, const PluginCaller& own)
    : clock_(clock), caller_(caller), own_caller_(own), thread_([this] { work(); }) {}

void CommThread::end() noexcept {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

CommThread::Number CommThread::start(PluginCall call, std::function<void()> transfer, std::function<void()> finish) {
  {
    const std::lock_guard lock(mutex_);
    transfers_.push_back({++last_, call, std::move(transfer), std::move(finish)});
  }
  changed_.notify_all();
  return last_;
}

void CommThread::wait(Number number) {
  std::unique_lock lock(mutex_);
  while (!transfers_.empty() && transfers_.front().number <= number) {
    wait_for_first(lock);
    const Transfer first = std::move(transfers_.front());
    transfers_.pop_front();
    --n_done_;
    lock.unlock();
    if (first.finish != nullptr) first.finish();
    lock.lock();
  }
  if (error_ != nullptr) std::rethrow_exception(error_);
}

void CommThread::wait_for_first(std::unique_lock<std::mutex>& lock) {
  const Transfer& first = transfers_.front();
  if (first.is_done) return;
  const ClockSpan span(clock_, DDH_SPAN_COMM);
  const PluginCaller::Entered entered = caller_.enter(first.call);
  changed_.wait(lock, [&] { return first.is_done || error_ != nullptr; });
  if (!first.is_done) std::rethrow_exception(error_);
}

void CommThread::drop(Number number) noexcept {
  std::unique_lock lock(mutex_);
  const auto is_it = [&](const Transfer& t) { return t.number == number; };
  const auto it = std::find_if(transfers_.begin(), transfers_.end(), is_it);
  if (it == transfers_.end()) return;
  Transfer& transfer = *it;
  transfer.finish = nullptr;
  const PluginCaller::Entered entered = caller_.enter(transfer.call);
  changed_.wait(lock, [&] { return transfer.is_done || error_ != nullptr; });
}

void CommThread::settle() noexcept {
  std::unique_lock lock(mutex_);
  if (n_done_ == transfers_.size()) return;
  const PluginCaller::Entered entered = caller_.enter(transfers_[n_done_].call);
  changed_.wait(lock, [&] { return n_done_ == transfers_.size() || error_ != nullptr; });
}

// After an error the others are not run: the ranks do not agree any more.
void CommThread::work() {
  own_caller_.note_thread(::gettid());
  std::unique_lock lock(mutex_);
  while (error_ == nullptr) {
    changed_.wait(lock, [&] { return is_ending_ || n_done_ < transfers_.size(); });
    if (is_ending_) return;
    Transfer& next = transfers_[n_done_];
    std::exception_ptr error;
    lock.unlock();
    try {
      next.run();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error == nullptr) {
      next.is_done = true;
      ++n_done_;
    }
    error_ = error;
    changed_.notify_all();
  }
}

}  // namespace ddhost
