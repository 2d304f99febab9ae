// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/memory_tier.hpp: a tier in the host's pinned memory, for accelerators with less of their own. Tiles are copied
// on a stream of the tier's, beside the computation; events order the two. On the CPU device it is a plain copy.
#pragma once

#include <algorithm>

#include "ddh/sdk/tier/tier.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class MemoryTier final : public Tier {
 public:
  MemoryTier(const Host& host, uint64_t tile_bytes) : Tier(tile_bytes), host_(host) {}
  MemoryTier(const MemoryTier&) = delete;
  MemoryTier& operator=(const MemoryTier&) = delete;
  ~MemoryTier() override {
    if (stream_ == nullptr) return;
    ErrorBuffer ignored;  // a failure of the device has been told elsewhere
    host_.stream->synchronize(host_.h, stream_, ignored.get());
    for (ddh_event* event : events_) host_.stream->event_destroy(host_.h, event);
    host_.stream->destroy(host_.h, stream_);
  }

  size_t add_cut(const std::string& name, int32_t tag, uint64_t bytes, uint64_t tensor_tile_bytes) override {
    tensors_.push_back({name, tag, bytes, tensor_tile_bytes, {}});
    return tensors_.size() - 1;
  }
  void reserve() override {
    for (Tensor& t : tensors_)
      if (t.bytes > 0) t.block = Buffer(host_, t.tag, t.bytes, t.name, DDH_ALLOC_ZERO, DDH_MEM_PINNED);
    call(host_.stream->create, host_.h, "offload", &stream_);
  }

  Handle begin_read(size_t tensor, uint64_t tile, void* buffer) override {
    traffic_.read_bytes += bytes_of(tensor, tile);
    wait_for_default();
    call(host_.copy->copy, host_.h, buffer, DDH_MEM_DEVICE, place_of(tensor, tile), DDH_MEM_PINNED,
         bytes_of(tensor, tile), stream_);
    return record(stream_);
  }
  Handle begin_write(size_t tensor, uint64_t tile, const void* buffer) override {
    traffic_.written_bytes += bytes_of(tensor, tile);
    wait_for_default();
    call(host_.copy->copy, host_.h, place_of(tensor, tile), DDH_MEM_PINNED, buffer, DDH_MEM_DEVICE,
         bytes_of(tensor, tile), stream_);
    return record(stream_);
  }
  // The default stream waits, not the caller.
  void wait(Handle handle) override {
    if (handle == kDone) return;
    call(host_.stream->wait, host_.h, nullptr, events_[handle - 1]);
    free_.push_back(handle);
  }
  [[nodiscard]] Traffic traffic() const override { return traffic_; }
  float* memory(size_t tensor) override {
    call(host_.stream->synchronize, host_.h, stream_);
    return tensors_[tensor].block.f32();
  }

 private:
  struct Tensor {
    std::string name;
    int32_t tag;
    uint64_t bytes, tile_bytes;
    Buffer block;
  };
  [[nodiscard]] uint64_t bytes_of(size_t tensor, uint64_t tile) const {
    const Tensor& t = tensors_[tensor];
    return std::min(t.tile_bytes, t.bytes - tile * t.tile_bytes);
  }
  [[nodiscard]] char* place_of(size_t tensor, uint64_t tile) const {
    return static_cast<char*>(tensors_[tensor].block.data()) + tile * tensors_[tensor].tile_bytes;
  }
  // The tier's stream goes on after what the default stream has done to the buffer so far.
  void wait_for_default() {
    const Handle computed = record(nullptr);
    call(host_.stream->wait, host_.h, stream_, events_[computed - 1]);
    free_.push_back(computed);
  }
  // An event behind the work of a stream; its handle.
  Handle record(ddh_stream* stream) {
    if (free_.empty()) {
      ddh_event* event = nullptr;
      call(host_.stream->event_create, host_.h, &event);
      events_.push_back(event);
      free_.push_back(events_.size());
    }
    const Handle handle = free_.back();
    free_.pop_back();
    call(host_.stream->record, host_.h, events_[handle - 1], stream);
    return handle;
  }

  const Host& host_;
  ddh_stream* stream_ = nullptr;
  std::vector<Tensor> tensors_;
  std::vector<ddh_event*> events_;  // handle - 1
  std::vector<Handle> free_;
  Traffic traffic_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
