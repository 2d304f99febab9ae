// SPDX-License-Identifier: Apache-2.0
//
// engine/services/memory/staging.hpp: access of the host's own code and of transports to device memory. If it is host
// memory, they use it in place at no cost. Otherwise they use a copy in staging memory (DDH_MEM_PINNED, tag comm).
#pragma once

#include <cstring>
#include <optional>

#include "engine/services/device.hpp"
#include "engine/services/memory/memory.hpp"

namespace ddhost {

// One staging block of a rank; grows to the largest use. One use at a time, by the thread that makes the rank's call.
class Staging {
 public:
  explicit Staging(Memory& memory) : memory_(memory) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() { memory_.release(block_); }

  // Begins a use: returns host memory for [at, at + bytes) of the device. Its content is undefined unless it is `at`
  // itself.
  char* begin(void* at, uint64_t bytes);
  // host = device, done on return. The pointers belong to one use. On host memory they are equal and nothing is copied.
  void fetch(void* host, const void* device, uint64_t bytes, ddh_stream* stream);
  // device = host, in the order of the stream. The host must wait before it writes there again.
  void store(void* device, const void* host, uint64_t bytes, ddh_stream* stream);
  // Lets the host read and write [at, at + bytes) of host memory, which may be pinned, after the work of the stream.
  void claim(void* at, uint64_t bytes, ddh_stream* stream);
  void wait();
  // The values at `p` for the caller to read: `p` itself if it is host memory, else a copy, made in the order of
  // `stream` and valid until the next use.
  const char* readable(const void* p, uint64_t bytes, ddh_stream* stream);

  // Whether the host may access `p` directly: all memory on the CPU device; else memory that is not a device's block or
  // window.
  [[nodiscard]] bool is_here(const void* p) const { return memory_.is_host_memory(p); }
  [[nodiscard]] Device& device() const { return memory_.device(); }

 private:
  Memory& memory_;
  void* block_ = nullptr;
  uint64_t bytes_ = 0;
  std::optional<StreamMark> stored_;  // after the last store, whose stream may be destroyed
  bool storing_ = false;              // a store may still read the block
};

// Values of a model's buffers are read and written in host memory or in a block of the device. The caller has waited for the
// model's work.
inline uint64_t bytes_of(const ddh_buffer_desc& buffer) { return buffer.numel * ddh_dtype_bytes(buffer.dtype); }

// Values to read; valid until staging is used again.
inline const void* buffer_values(const ddh_buffer_desc& buffer, Staging& staging) {
  return staging.is_here(buffer.data) ? buffer.data : staging.readable(buffer.data, bytes_of(buffer), nullptr);
}

inline void set_buffer_values(const ddh_buffer_desc& buffer, const void* from, Staging& staging) {
  if (buffer.numel == 0) return;
  if (staging.is_here(buffer.data)) {
    std::memcpy(buffer.data, from, bytes_of(buffer));
    return;
  }
  char* const on_its_way = staging.begin(buffer.data, bytes_of(buffer));
  std::memcpy(on_its_way, from, bytes_of(buffer));
  staging.store(buffer.data, on_its_way, bytes_of(buffer), nullptr);
}

}  // namespace ddhost
