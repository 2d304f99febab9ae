// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/memory_tier.hpp: a tier in pinned memory of the host. Tiles are copied on the tier's own stream,
// concurrently with the computation; events synchronize the two. On the CPU device it is a plain copy.
#pragma once

#include <sys/uio.h>

#include <vector>

#include "ddh/sdk/tier/tier.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class MemoryTier final : public Tier {
 public:
  MemoryTier(const Host& host, uint64_t tile_bytes) : Tier(tile_bytes), host_(host) {}
  MemoryTier(const MemoryTier&) = delete;
  MemoryTier& operator=(const MemoryTier&) = delete;
  ~MemoryTier() override;

  size_t add_cut(const std::string& name, int32_t tag, uint64_t bytes, uint64_t tensor_tile_bytes) override;
  void reserve() override;
  void free(size_t tensor) override;

  // Buffers in pinned memory; all others are in memory of the device.
  void pinned_buffers(std::vector<iovec> buffers) { pinned_ = std::move(buffers); }

  Handle begin_read(size_t tensor, uint64_t tile, void* buffer) override;
  Handle begin_write(size_t tensor, uint64_t tile, const void* buffer) override;
  // The default stream waits; the caller waits only for the copy of a pinned buffer.
  void wait(Handle handle) override;
  [[nodiscard]] Traffic traffic() const override { return traffic_; }
  float* memory(size_t tensor) override;

 private:
  struct Tensor {
    std::string name;
    int32_t tag;
    uint64_t bytes, tile_bytes;
    Buffer block;
  };
  [[nodiscard]] uint64_t bytes_of(size_t tensor, uint64_t tile) const;
  [[nodiscard]] char* place_of(size_t tensor, uint64_t tile) const;
  [[nodiscard]] int32_t memory_of(const void* buffer) const;
  // The tier's stream waits for the work that the default stream has queued on the buffer.
  void wait_for_default();
  // The handle of the copy that was just queued for a buffer.
  Handle recorded_for(const void* buffer);
  // Records an event after the work of a stream; returns its handle.
  Handle record(ddh_stream* stream);

  const Host& host_;
  ddh_stream* stream_ = nullptr;
  std::vector<Tensor> tensors_;
  std::vector<iovec> pinned_;
  std::vector<ddh_event*> events_;  // handle - 1
  std::vector<uint8_t> is_pinned_;  // handle - 1: the buffer of its copy
  std::vector<Handle> free_;
  Traffic traffic_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
