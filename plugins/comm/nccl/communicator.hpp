// SPDX-License-Identifier: Apache-2.0
//
// communicator.hpp: one communicator of NCCL. It never blocks: every call returns at once and is polled to a deadline, so
// that a peer that is missing gives an error and no hang.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "library.hpp"

namespace nccl DDH_HIDDEN {

struct Membership {
  std::string name;  // of the group, for messages
  int rank = 0, size = 1;
  int cta_policy = Config::kUndefined;
  std::chrono::milliseconds deadline{0};  // of a call, until NCCL has queued it
};

class Communicator {
 public:
  // Connects to the other members. [collective]
  Communicator(const Library& library, Membership membership, const UniqueId& id);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  // Aborts, unless it was finalized.
  ~Communicator();

  [[nodiscard]] int rank() const { return membership_.rank; }
  [[nodiscard]] int size() const { return membership_.size; }
  [[nodiscard]] const std::string& name() const { return membership_.name; }

  // Calls body(comm), whose NCCL calls form one group, and waits until NCCL has queued them. `what` is for messages.
  // Throws the failure that the watch has found, if any.
  void queue(const char* what, const std::function<void(Comm)>& body);
  // Inside of queue: throws where a call was refused.
  void check(Result result, const char* call) const;

  // Ends the work of this rank, so that waits for streams return. Later calls throw `reason`. [any]
  void abort(const std::string& reason);
  // What NCCL has found since: an error of a peer or of the network; empty: nothing. [any]
  [[nodiscard]] std::string find_failure();
  // Throws the reason of an abort.
  void require_healthy() const;
  // Throws the first failure of giving something back, also of an earlier call. [collective]
  void finalize();

  // Why NCCL has not registered it; empty: it has, or there is nothing to register.
  [[nodiscard]] std::string register_buffer(void* p, uint64_t bytes);
  void unregister_buffer(void* p);
  // Memory of NCCL that is a symmetric window, of `bytes` on every rank. Its library has_windows. [collective]
  void* allocate_window(uint64_t bytes);
  // Why it was not given back; empty: it was.
  std::string free_window(void* p);

 private:
  [[nodiscard]] std::string sentence_of(Result result, const char* call) const;
  // Keeps the first failure for finalize.
  std::string note(Result result, const char* call);
  // Polls until NCCL is done with a call.
  void settle(const char* what, Result result);

  const Library& library_;
  const Membership membership_;
  std::mutex use_;  // held during calls of NCCL, because abort frees the communicator
  Comm comm_ = nullptr;
  std::atomic<bool> aborting_{false};
  mutable std::mutex reason_mutex_;
  std::string reason_;
  std::string not_given_back_;       // the first failure
  std::map<void*, void*> handles_;   // of registered buffers
  std::map<void*, Window> windows_;  // by their memory
};

}  // namespace DDH_HIDDEN
