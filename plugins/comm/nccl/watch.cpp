// SPDX-License-Identifier: Apache-2.0
#include "watch.hpp"

namespace nccl DDH_HIDDEN {
namespace {

constexpr std::chrono::milliseconds kPause{100};

}  // namespace

void Watch::add(Communicator& communicator) {
  const std::lock_guard lock(mutex_);
  communicators_.push_back(&communicator);
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

void Watch::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopping_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::vector<Communicator*> Watch::all() {
  const std::lock_guard lock(mutex_);
  return communicators_;
}

void Watch::abort_all(const std::string& reason) {
  for (Communicator* communicator : all()) communicator->abort(reason);
}

void Watch::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_.wait_for(lock, kPause, [this] { return stop_; })) {
    const std::vector<Communicator*> now = communicators_;
    lock.unlock();
    for (Communicator* communicator : now) {
      const std::string failure = communicator->find_failure();
      if (failure.empty()) continue;
      report_(failure);
      abort_all(failure);
    }
    lock.lock();
  }
}

}  // namespace DDH_HIDDEN
