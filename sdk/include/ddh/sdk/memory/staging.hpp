// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/memory/staging.hpp: data of the host on its way to the device, and results on their way back, through pinned
// memory. Copies are queued in the order of a stream. The host waits for single copies, not for the work behind them.
#pragma once

#include <array>
#include <vector>

#include "ddh/sdk/plugin.hpp"
#include "ddh/sdk/stream.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// Waits on the host for events. `host` outlives it.
class HostWait {
 public:
  explicit HostWait(const Host& host) : host_(host) { call(host.stream->create, host.h, "waits", &stream_); }
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;
  ~HostWait() { host_.stream->destroy(host_.h, stream_); }

  // Returns when the last recording of the event is complete.
  void until(Event& event) {
    event.wait(stream_);
    call(host_.stream->synchronize, host_.h, stream_);
  }
  // The same for destructors, where an error of the device is known already or can't be told.
  void until_or_fault(Event& event) noexcept;

 private:
  const Host& host_;
  ddh_stream* stream_ = nullptr;  // has no work but these waits
};

// Two blocks of pinned memory for the way to the device, used in turn. A block is filled when its last copies are done;
// so the host is at most two uploads ahead of the device. Blocks grow to the largest upload.
class PinnedUploads {
 public:
  struct Part {
    void* to;          // on the device
    const void* from;  // on the host
    uint64_t bytes;
  };

  explicit PinnedUploads(const Host& host) : host_(host), wait_(host), blocks_{Block(host), Block(host)} {}
  PinnedUploads(const PinnedUploads&) = delete;
  PinnedUploads& operator=(const PinnedUploads&) = delete;
  // Waits for its copies.
  ~PinnedUploads();

  // Queues the copies of all parts on `stream`. The originals may end at once.
  void queue(const std::vector<Part>& parts, ddh_stream* stream);
  // The caller knows that the streams of all uploads so far were synchronized; the next ones need no wait for them.
  void synchronized() {
    for (Block& block : blocks_) block.is_read = true;
  }

 private:
  struct Block {
    explicit Block(const Host& host) : copied(host) {}
    Buffer memory;
    Event copied;         // out of it
    bool is_read = true;  // the copies are known to be done
  };
  const Host& host_;
  HostWait wait_;
  std::array<Block, 2> blocks_;
  size_t next_ = 0;
};

// Pinned memory for results of the device, such as the sums for ddh_model_api.metrics.
class PinnedResult {
 public:
  explicit PinnedResult(const Host& host) : host_(host), wait_(host), sent_(host) {}
  PinnedResult(const PinnedResult&) = delete;
  PinnedResult& operator=(const PinnedResult&) = delete;
  // Waits for its copy.
  ~PinnedResult() {
    if (is_on_its_way_) wait_.until_or_fault(sent_);
  }

  // Queues the copy of `bytes` of the device's memory on `stream`.
  void send(const void* from, uint64_t bytes, ddh_stream* stream);
  // What was sent last. The stream was synchronized since, as the host does before it calls `metrics`. Valid until the
  // next send.
  const void* read() {
    is_on_its_way_ = false;
    return memory_.data();
  }

 private:
  const Host& host_;
  HostWait wait_;
  Buffer memory_;
  Event sent_;
  bool is_on_its_way_ = false;  // the copy may not be done
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
