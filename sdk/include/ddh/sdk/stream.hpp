// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/stream.hpp: host functions on a stream (ddh_stream.run) as C++ callables, and the list of memory that they
// access.
#pragma once

#include <memory>
#include <vector>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// The memory that a piece of work accesses: Accesses().reads(src, n).writes(dst, n).
class Accesses {
 public:
  Accesses& reads(const void* data, uint64_t bytes) { return add(data, bytes, DDH_ACCESS_READ); }
  Accesses& writes(const void* data, uint64_t bytes) { return add(data, bytes, DDH_ACCESS_WRITE); }
  Accesses& updates(const void* data, uint64_t bytes) { return add(data, bytes, DDH_ACCESS_READ | DDH_ACCESS_WRITE); }

  [[nodiscard]] const ddh_access* data() const { return list_.data(); }
  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(list_.size()); }

 private:
  Accesses& add(const void* data, uint64_t bytes, uint32_t mode);
  std::vector<ddh_access> list_;
};

// A point in one stream that other streams can wait for. `host` outlives it.
class Event {
 public:
  explicit Event(const Host& host) : host_(host) { call(host.stream->event_create, host.h, &event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { host_.stream->event_destroy(host_.h, event_); }

  void record(ddh_stream* stream) { call(host_.stream->record, host_.h, event_, stream); }
  // Later work on `stream` waits for the last recording.
  void wait(ddh_stream* stream) { call(host_.stream->wait, host_.h, stream, event_); }

 private:
  const Host& host_;
  ddh_event* event_ = nullptr;
};

// Queues body() on a stream. `body` must own its data, because it may run after this call has returned. It throws if it
// fails. `h` is the first argument of the table's functions.
template <class Body>
void run_on_stream(const ddh_stream_api& table, void* h, ddh_stream* stream, const Accesses& accesses, const char* name,
                   Body body) {
  struct Job {
    Body body;
    bool called = false;
  };
  const auto job = std::make_shared<Job>(Job{std::move(body)});
  auto handed_over = std::make_unique<std::shared_ptr<Job>>(job);
  const ddh_stream_fn function = [](void* arg, ddh_err* err) noexcept {
    const std::unique_ptr<std::shared_ptr<Job>> mine(static_cast<std::shared_ptr<Job>*>(arg));
    (*mine)->called = true;
    return guard(err, [&] { (*mine)->body(); });
  };
  ErrorBuffer err;
  const ddh_rc rc =
      table.run(h, stream, function, handed_over.get(), accesses.data(), accesses.size(), name, err.get());
  // After an error `called` says whether the job ran: an inline stream has run it, any other stream never will.
  if (rc == DDH_OK || job->called) (void)handed_over.release();
  err.check(rc);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
