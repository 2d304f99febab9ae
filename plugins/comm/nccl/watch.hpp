// SPDX-License-Identifier: Apache-2.0
//
// watch.hpp: a thread that asks all communicators of this rank for errors of peers and of the network. It aborts all of
// them where one has failed: work that waits for a lost peer then ends, and the next call throws the reason.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "communicator.hpp"

namespace nccl DDH_HIDDEN {

class Watch {
 public:
  explicit Watch(std::function<void(const std::string&)> report) : report_(std::move(report)) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() { stop(); }

  // `communicator` outlives the watch, or stop.
  void add(Communicator& communicator);
  void stop();
  // Aborts all. [any]
  void abort_all(const std::string& reason);

 private:
  void run();
  [[nodiscard]] std::vector<Communicator*> all();

  const std::function<void(const std::string&)> report_;
  std::mutex mutex_;
  std::condition_variable stopping_;
  bool stop_ = false;
  std::vector<Communicator*> communicators_;
  std::thread thread_;
};

}  // namespace DDH_HIDDEN
