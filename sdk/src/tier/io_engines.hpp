// SPDX-License-Identifier: Apache-2.0
//
// The two engines behind make_io_engine, and what they share.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "ddh/sdk/tier/file_io.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// A thread with all signals blocked; the main thread handles them.
template <class Body>
std::thread quiet_thread(Body&& body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::forward<Body>(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

// Results of operations, passed from the thread that completes them to the thread that waits.
class IoResults {
 public:
  explicit IoResults(uint32_t depth) : results_(depth), done_(depth, true) {}
  void begin(uint32_t tag);
  void end(uint32_t tag, int64_t bytes);
  IoEngine::Result wait(uint32_t tag);

 private:
  std::mutex mutex_;
  std::condition_variable op_ends_;
  std::vector<IoEngine::Result> results_;  // per tag
  std::vector<bool> done_;
};

// pread and pwrite on two threads.
std::unique_ptr<IoEngine> make_thread_io(int fd, uint32_t depth);
// io_uring. Throws an Error with the reason where it is not available.
std::unique_ptr<IoEngine> make_uring_io(int fd, uint32_t depth);

}  // namespace DDH_HIDDEN
}  // namespace ddh
