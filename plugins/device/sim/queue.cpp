// SPDX-License-Identifier: Apache-2.0
#include "queue.hpp"

#include <chrono>

#include "ddh/sdk/kernels/counter_rng.hpp"

namespace sim {
namespace {

// One step of splitmix64 (Steele, Lea and Flood 2014).
uint64_t next_random(uint64_t& state) {
  state += ddh::kMixStep;
  return ddh::mix64(state);
}

}  // namespace

void Signal::set() {
  const std::lock_guard lock(mutex_);
  is_set_ = true;
  changed_.notify_all();
}

void Signal::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_set_; });
}

Queue::Queue(std::string name, size_t actor, Delays delays)
    : name_(std::move(name)), actor_(actor), delays_(delays), thread_([this] { loop(); }) {}

Queue::~Queue() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Queue::push(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(work));
  changed_.notify_all();
}

void Queue::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty() && !busy_; });
}

void Queue::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !waiting_.empty() || ending_; });
    if (waiting_.empty()) return;
    std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    busy_ = true;
    lock.unlock();
    work();
    work = nullptr;  // destroy its data before the queue counts as idle
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void Queue::delay() {
  int64_t us = delays_.base_us;
  if (delays_.jitter_us > 0)
    us += static_cast<int64_t>(next_random(delays_.seed) % static_cast<uint64_t>(delays_.jitter_us + 1));
  if (us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
}

}  // namespace sim
