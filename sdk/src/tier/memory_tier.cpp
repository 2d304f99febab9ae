// SPDX-License-Identifier: Apache-2.0
//
// Copies between the device and pinned memory, ordered by events.
#include "ddh/sdk/tier/memory_tier.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

MemoryTier::~MemoryTier() {
  if (stream_ == nullptr) return;
  ErrorBuffer ignored;  // a failure of the device was already reported
  host_.stream->synchronize(host_.h, stream_, ignored.get());
  for (ddh_event* event : events_) host_.stream->event_destroy(host_.h, event);
  host_.stream->destroy(host_.h, stream_);
}

size_t MemoryTier::add_cut(const std::string& name, int32_t tag, uint64_t bytes, uint64_t tensor_tile_bytes) {
  tensors_.push_back({name, tag, bytes, tensor_tile_bytes, {}});
  return tensors_.size() - 1;
}

void MemoryTier::reserve() {
  for (Tensor& t : tensors_)
    if (t.bytes > 0) t.block = Buffer(host_, t.tag, t.bytes, t.name, DDH_ALLOC_ZERO, DDH_MEM_PINNED);
  call(host_.stream->create, host_.h, "offload", &stream_);
}

void MemoryTier::free(size_t tensor) {
  call(host_.stream->synchronize, host_.h, stream_);
  tensors_[tensor].block = Buffer();
}

Tier::Handle MemoryTier::begin_read(size_t tensor, uint64_t tile, void* buffer) {
  traffic_.read_bytes += bytes_of(tensor, tile);
  wait_for_default();
  call(host_.copy->copy, host_.h, buffer, memory_of(buffer), place_of(tensor, tile), DDH_MEM_PINNED,
       bytes_of(tensor, tile), stream_);
  return recorded_for(buffer);
}

Tier::Handle MemoryTier::begin_write(size_t tensor, uint64_t tile, const void* buffer) {
  traffic_.written_bytes += bytes_of(tensor, tile);
  wait_for_default();
  call(host_.copy->copy, host_.h, place_of(tensor, tile), DDH_MEM_PINNED, buffer, memory_of(buffer),
       bytes_of(tensor, tile), stream_);
  return recorded_for(buffer);
}

void MemoryTier::wait(Handle handle) {
  if (handle == kDone) return;
  call(host_.stream->wait, host_.h, nullptr, events_[handle - 1]);
  // The next user of a pinned buffer may be a disk, which knows no events.
  if (is_pinned_[handle - 1] != 0) call(host_.stream->synchronize, host_.h, stream_);
  free_.push_back(handle);
}

Tier::Handle MemoryTier::recorded_for(const void* buffer) {
  const Handle handle = record(stream_);
  is_pinned_[handle - 1] = memory_of(buffer) == DDH_MEM_PINNED ? 1 : 0;
  return handle;
}

float* MemoryTier::memory(size_t tensor) {
  call(host_.stream->synchronize, host_.h, stream_);
  return tensors_[tensor].block.f32();
}

uint64_t MemoryTier::bytes_of(size_t tensor, uint64_t tile) const {
  const Tensor& t = tensors_[tensor];
  return std::min(t.tile_bytes, t.bytes - tile * t.tile_bytes);
}

char* MemoryTier::place_of(size_t tensor, uint64_t tile) const {
  return static_cast<char*>(tensors_[tensor].block.data()) + tile * tensors_[tensor].tile_bytes;
}

int32_t MemoryTier::memory_of(const void* buffer) const {
  const auto* const p = static_cast<const char*>(buffer);
  for (const iovec& range : pinned_) {
    const auto* const begin = static_cast<const char*>(range.iov_base);
    if (p >= begin && p < begin + range.iov_len) return DDH_MEM_PINNED;
  }
  return DDH_MEM_DEVICE;
}

void MemoryTier::wait_for_default() {
  const Handle computed = record(nullptr);
  call(host_.stream->wait, host_.h, stream_, events_[computed - 1]);
  free_.push_back(computed);
}

Tier::Handle MemoryTier::record(ddh_stream* stream) {
  if (free_.empty()) {
    ddh_event* event = nullptr;
    call(host_.stream->event_create, host_.h, &event);
    events_.push_back(event);
    is_pinned_.push_back(0);
    free_.push_back(events_.size());
  }
  const Handle handle = free_.back();
  free_.pop_back();
  call(host_.stream->record, host_.h, events_[handle - 1], stream);
  return handle;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
