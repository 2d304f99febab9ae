// SPDX-License-Identifier: Apache-2.0
//
// session.hpp: MPI in this process, which can begin and end it once. Every call of MPI is made under one lock, so that `abort`
// may come from any thread and an MPI without MPI_THREAD_MULTIPLE is enough.
#pragma once

#include <mpi.h>

#include <mutex>

#include "ddh/sdk/comm.hpp"

namespace mpi_transport {

class Session {
 public:
  // Error: no MPI launcher has started this process, or its ranks are not those of the run. [collective] [blocks]
  explicit Session(const ddh_comm_init& args);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() = default;  // without end() MPI stays: it can't end while other ranks have failed

  // [collective] [blocks] Error: stopped.
  void end();
  // No call of MPI is made from now on, so that MPI writes into no memory any more. Callable from any thread.
  void stop() noexcept {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }

  // Calls `function`, an MPI function that returns an error code. Error: std::runtime_error with MPI's words, or
  // that the session was stopped.
  template <class Function>
  void call(const Function& function) {
    const std::lock_guard lock(mutex_);
    require_running();
    check(function());
  }
  // The first of two numbers that no other group with this first member has.
  [[nodiscard]] int next_tag();

 private:
  static void check(int code);
  void require_running() const;  // under the lock

  const int32_t rank_, world_size_;
  std::mutex mutex_;
  bool is_stopped_ = false;
  int groups_ = 0;  // whose first member is this rank
};

}  // namespace mpi_transport
