// SPDX-License-Identifier: Apache-2.0
//
// context.hpp: the opened device: its memory, its queues, and the check of everything that is queued.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "blocks.hpp"
#include "checker.hpp"
#include "ddh/sdk/plugin.hpp"
#include "ddh/sdk/stream.hpp"
#include "queue.hpp"

namespace sim {

struct Settings {
  uint64_t capacity_bytes, quarantine_bytes;
  Delays delays;
  bool check;
};

struct Event {
  SignalPtr signal;  // null: never recorded
  VectorClock clock;
};

// Mistakes are ddh::Errors. If one is found when work is queued, the work is refused. Mistakes that are found later,
// and failures of the work itself, are returned by every later call.
class Context {
 public:
  using Log = std::function<void(const std::string&)>;
  Context(const Settings& settings, Log log);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();  // waits for all queues; logs the last mistakes

  void* allocate(const ddh_alloc_args& args);
  void release(void* p);
  [[nodiscard]] uint64_t capacity_bytes() const { return blocks_.capacity_bytes(); }
  [[nodiscard]] uint64_t free_bytes();

  // nullptr is the default stream below.
  Queue* create_stream(const std::string& name);
  void destroy_stream(Queue* queue);
  void record(Event& event, Queue* queue);
  void wait(Queue* queue, const Event& event);
  void synchronize(Queue* queue);

  void submit(Queue* queue, const std::string& name, const ddh::Accesses& accesses, std::function<void()> work);
  // The same for an operation of the device itself, whose arrays must be accessible to the device.
  void submit_flat(Queue* queue, const std::string& name, const ddh::Accesses& arrays, std::function<void()> work) {
    if (settings_.check) check_reachable(arrays, name);
    submit(queue, name, arrays, std::move(work));
  }
  void copy(void* dst, int32_t dst_memory, const void* src, int32_t src_memory, uint64_t bytes, Queue* queue);
  void touch(const ddh::Accesses& accesses, const std::string& name);

 private:
  void check_reachable(const ddh::Accesses& arrays, const std::string& name);
  [[nodiscard]] Queue& queue_of(Queue* queue) const { return queue != nullptr ? *queue : *queues_.front(); }
  // All below: with mutex_ held.
  const Block* check_place(const ddh_access& access, const std::string& who) const;
  void check_kind(const char* side, const void* p, int32_t said) const;
  void check_order(const ddh_access& access, const std::string& who, size_t actor, const VectorClock& now) const;
  [[nodiscard]] std::string name_of(const char* p) const;
  void drain_all();
  void note_mistake(const std::string& sentence);
  void throw_if_failed();
  void fail_once(const ddh::Error& error);  // on any thread, without mutex_

  const Settings settings_;
  const Log log_;
  std::mutex mutex_;
  Blocks blocks_;
  Checker checker_;
  VectorClock host_clock_;
  size_t next_actor_ = 1;  // 0 is the host
  std::mutex failure_mutex_;
  std::optional<ddh::Error> failure_;
  std::vector<std::unique_ptr<Queue>> queues_;  // the first is the default stream
};

}  // namespace sim
