// SPDX-License-Identifier: Apache-2.0
//
// engine/services/comm/comm_thread.hpp: a thread that calls the transport while the rank computes. It takes transfers in the
// order in which they were given. All other calls of the transport wait for it (Comm::call), so every rank still makes its
// calls in the order of its program, one at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "engine/calls/plugin_caller.hpp"

namespace ddhost {

class Clock;

class CommThread {
 public:
  // A transfer; 0: none. They count from 1.
  using Number = uint64_t;

  // `clock` and what the callers refer to outlive the object. `caller`: for the waits of the rank's main thread; `own`: for the
  // thread that this object starts.
  CommThread(Clock& clock, const PluginCaller& caller, const PluginCaller& own);
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;
  ~CommThread() { end(); }

  // Waits for the running transfer, and ends. Others are dropped.
  void end() noexcept;

  // `transfer` runs on the thread, and its memory stays in place. `finish` runs after it, in a wait. `call`: what a rank that
  // waits for the transfer is said to be in.
  Number start(PluginCall call, std::function<void()> transfer, std::function<void()> finish);
  // Until this transfer and all before it are finished. Once a transfer has thrown, no later one runs, and every wait rethrows
  // that.
  void wait(Number number);
  void wait_all() { wait(last_); }
  // Until this transfer, whose memory ends, does not run any more. Its `finish` is not called.
  void drop(Number number) noexcept;
  // Until no transfer runs or waits to run.
  void settle() noexcept;
  // For the calls of transfers, on the thread that this object started.
  [[nodiscard]] const PluginCaller& own_caller() const { return own_caller_; }
  [[nodiscard]] bool is_calling_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  struct Transfer {
    Number number;
    PluginCall call;
    std::function<void()> run, finish;
    bool is_done = false;
  };

  void work();
  // Until the oldest transfer is done. Rethrows an error.
  void wait_for_first(std::unique_lock<std::mutex>& lock);

  Clock& clock_;
  const PluginCaller caller_, own_caller_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Transfer> transfers_;  // that are not finished, the oldest first; elements stay in place
  size_t n_done_ = 0;               // of transfers_, from the oldest
  bool is_ending_ = false;
  std::exception_ptr error_;  // of a transfer; the thread has ended
  Number last_ = 0;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace ddhost
