// SPDX-License-Identifier: Apache-2.0
//
// engine/services/staging.hpp: how the host's own code and transports get at the device's memory. Where that is the host's
// memory they touch it in place, and nothing here costs anything; elsewhere they work on a copy in staging memory
// (DDH_MEM_PINNED, tag comm).
#pragma once

#include <optional>

#include "engine/services/device.hpp"
#include "engine/services/memory.hpp"

namespace ddhost {

// One staging block of a rank; grows to the largest use. One use at a time, by the thread that makes the rank's call.
class Staging {
 public:
  explicit Staging(Memory& memory) : memory_(memory) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() { memory_.release(block_); }

  // Begins a use: host memory that stands for [at, at + bytes) of the device. Its content is undefined where it is not
  // `at` itself.
  char* begin(void* at, uint64_t bytes);
  // host = device, done on return. Pointers of one use; on host memory they are the same and nothing happens.
  void fetch(void* host, const void* device, uint64_t bytes, ddh_stream* stream);
  // device = host, in the order of the stream; before the host writes there again, wait.
  void store(void* device, const void* host, uint64_t bytes, ddh_stream* stream);
  // The host itself reads and writes [at, at + bytes) of its own memory, pinned perhaps, behind the work of the stream.
  void claim(void* at, uint64_t bytes, ddh_stream* stream);
  void wait();
  // The values at `p` for the caller to read: `p` itself where that is the host's memory, else a copy, made in the order
  // of `stream` and valid until the next use.
  const char* readable(const void* p, uint64_t bytes, ddh_stream* stream);

  // Whether the host may touch `p` as it is: all memory of the CPU, and what is not a device's block or window.
  [[nodiscard]] bool is_here(const void* p) const { return memory_.is_host_memory(p); }
  [[nodiscard]] Device& device() const { return memory_.device(); }

 private:
  Memory& memory_;
  void* block_ = nullptr;
  uint64_t bytes_ = 0;
  std::optional<StreamMark> stored_;  // behind the last store, whose stream may be gone
  bool storing_ = false;              // a store may still read the block
};

}  // namespace ddhost
