// SPDX-License-Identifier: Apache-2.0
//
// engine/services/memory/copies.hpp: what windows and exchanges over collectives have in common: their memory, and the
// arguments of their collectives.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "ddh/sdk/collective.hpp"
#include "engine/services/memory/windows.hpp"

namespace ddhost {

// A block of tagged memory.
class Block {
 public:
  Block(Memory& memory, int32_t tag, uint64_t bytes, const char* name, const std::string& owner = "",
        int32_t kind = DDH_MEM_DEVICE)
      : memory_(memory),
        data_(memory.allocate({sizeof(ddh_alloc_args), tag, bytes, kind, DDH_ALLOC_ZERO, name}, owner)) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { memory_.release(data_); }
  [[nodiscard]] char* data() const { return static_cast<char*>(data_); }

 private:
  Memory& memory_;
  void* data_;
};

// The memory of a window or an exchange: a block of the transport of the device, if that has memory of its own; else a
// block of the device, about which that transport is told.
class CommBlock {
 public:
  // `most_bytes`: the largest `bytes` of the group's ranks. [collective]
  CommBlock(const Comm& comm, Memory& memory, ddh_group* group, int32_t tag, uint64_t bytes, uint64_t most_bytes,
            const char* name, const std::string& owner)
      : memory_(memory), of_transport_(comm.device(), comm.group_or_world(group), rounded(most_bytes)) {
    data_ = static_cast<char*>(of_transport_.data());
    if (data_ == nullptr) {
      data_ = of_device_.emplace(memory, tag, bytes, name, owner).data();
      registration_.emplace(comm.device(), comm.group_or_world(group), data_, bytes);
      return;
    }
    Device& device = memory.device();
    device.call()(PluginCall::kDeviceWork, device.flatops().fill, device.context(), data_, DDH_I64,
                  rounded(most_bytes) / sizeof(int64_t), 0.0, nullptr);
    device.synchronize(nullptr);
    memory_.adopt(data_, tag, bytes);
  }
  CommBlock(const CommBlock&) = delete;
  CommBlock& operator=(const CommBlock&) = delete;
  ~CommBlock() {
    if (!of_device_) memory_.forget(data_);
  }
  [[nodiscard]] char* data() const { return data_; }

 private:
  static uint64_t rounded(uint64_t bytes) { return (std::max<uint64_t>(bytes, 1) + 255) / 256 * 256; }

  Memory& memory_;
  const DeviceComm::Block of_transport_;
  std::optional<Block> of_device_;
  std::optional<DeviceComm::Registration> registration_;
  char* data_ = nullptr;
};

inline ddh_coll pieces(const Comm& comm, ddh_group* group, int32_t dtype, const Segments& segments,
                       const std::string& label) {
  ddh_coll c = ddh::collective(dtype, label.c_str());
  c.op = DDH_SUM;
  c.counts = segments.numel.data();
  c.group = comm.group_or_world(group);
  return c;
}

inline Segments segments_of(const Comm& comm, ddh_group* group, const uint64_t* segment_numel) {
  int32_t rank = 0, size = 1;
  comm.group_info(comm.group_or_world(group), &rank, &size, nullptr);
  return {segment_numel, rank, size};
}

// Whether a rank has memory of a device and no other rank to exchange it with.
inline bool is_alone(const Device& device, const Segments& segments) {
  return !device.is_host_memory() && segments.numel.size() == 1;
}

// `dst` may be pinned memory.
inline void copy_alone(const Memory& memory, void* dst, const void* src, uint64_t bytes, ddh_stream* stream) {
  if (dst != src && bytes > 0) memory.device().copy(dst, memory.kind_of(dst), src, memory.kind_of(src), bytes, stream);
}

}  // namespace ddhost
