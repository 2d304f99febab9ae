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
#include "ddh/sdk/device.hpp"
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
class Context final : public ddh::OpenDevice {
 public:
  using Log = std::function<void(const std::string&)>;
  Context(const Settings& settings, Log log);
  ~Context() override;  // waits for all queues; logs the last mistakes

  ddh_device_info info() override;
  void* allocate(const ddh_alloc_args& args) override;
  void release(void* p, int32_t memory) override;

  ddh_stream* stream_create(const char* name) override;
  void stream_destroy(ddh_stream* stream) override;
  ddh_event* event_create() override;
  void event_destroy(ddh_event* event) override;
  void record(ddh_event* event, ddh_stream* stream) override;
  void wait(ddh_stream* stream, ddh_event* event) override;
  void synchronize(ddh_stream* stream) override;
  void run(ddh_stream* stream, ddh_stream_fn fn, void* arg, const ddh_access* accesses, uint32_t n,
           const char* name) override;
  void touch(const ddh_access* accesses, uint32_t n, const char* name) override;

  void copy(void* dst, int32_t dst_memory, const void* src, int32_t src_memory, uint64_t bytes,
            ddh_stream* stream) override;
  void fill(void* dst, int32_t dtype, uint64_t numel, double value, ddh_stream* stream) override;
  void cast(void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype, uint64_t numel,
            ddh_stream* stream) override;
  void scale(float* dst, uint64_t numel, double factor, ddh_stream* stream) override;
  void add(float* dst, const float* src, uint64_t numel, ddh_stream* stream) override;

 private:
  // Work on a queue.
  void submit(Queue& queue, const std::string& name, const ddh::Accesses& accesses, std::function<void()> work);
  // The same for an operation of the device itself, whose arrays must be accessible to the device.
  void submit_flat(ddh_stream* stream, const std::string& name, const ddh::Accesses& arrays,
                   std::function<void()> work) {
    if (settings_.check) check_reachable(arrays, name);
    submit(queue_of(stream), name, arrays, std::move(work));
  }
  void check_reachable(const ddh::Accesses& arrays, const std::string& name);
  // NULL is the default stream.
  [[nodiscard]] Queue& queue_of(ddh_stream* stream) const {
    return stream != nullptr ? *reinterpret_cast<Queue*>(stream) : *queues_.front();
  }
  static Event& event_of(ddh_event* event) { return *reinterpret_cast<Event*>(event); }
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
