// SPDX-License-Identifier: Apache-2.0
//
// queue.hpp: a stream of the device: an in-order queue of work on a thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "checker.hpp"

namespace sim {

// A point in a queue that others can wait for.
class Signal {
 public:
  void set();
  void wait();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_set_ = false;
};
using SignalPtr = std::shared_ptr<Signal>;

// Microseconds before each piece of work: `base`, and up to `jitter` more in an order that the seed decides.
struct Delays {
  int64_t base_us = 0, jitter_us = 0;
  uint64_t seed = 0;
};

class Queue {
 public:
  Queue(std::string name, size_t actor, Delays delays);
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue();  // waits for the last piece of work

  void push(std::function<void()> work);
  void delay();  // called by the work itself; recording an event has no delay
  void drain();  // waits until the queue is empty and idle

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] size_t actor() const { return actor_; }
  VectorClock clock;        // of what is queued so far; under the context's lock
  uint64_t operations = 0;  // queued so far, likewise

 private:
  void loop();

  const std::string name_;
  const size_t actor_;
  Delays delays_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool busy_ = false, ending_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace sim
