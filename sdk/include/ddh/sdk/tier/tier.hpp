// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/tier.hpp: the interface of a tier: slower, larger memory for state. It stores tensors, which are divided
// into tiles of tile_bytes() or of a size of their own (the last one may be shorter). Whole tiles are transferred,
// concurrently with the caller.
//
//   const size_t m = tier.add("exp_avg of h.3", DDH_TAG_OPTIM, bytes);   // for each tensor
//   tier.reserve();                                                      // a full disk is an error here
//   const Tier::Handle h = tier.begin_read(m, 0, buffer);
//   ... work ...
//   tier.wait(h);
//
// Tensors are zero until written. One owner, one thread.
#pragma once

#include <chrono>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class Tier {
 public:
  using Handle = uint64_t;
  static constexpr Handle kDone = 0;  // nothing to wait for

  // Buffers are aligned to this, and tiles are multiples of it, except the last of a tensor. A buffer has the size of a
  // tile, rounded up to it.
  static constexpr uint64_t kAlignment = 4096;

  struct Traffic {
    uint64_t read_bytes = 0, written_bytes = 0;  // files count whole blocks
    double busy_seconds = 0;                     // time with at least one transfer in flight
    double wait_seconds = 0;                     // time in which the caller waited for one
  };

  explicit Tier(uint64_t tile_bytes) : tile_bytes_(tile_bytes) {
    if (tile_bytes == 0 || tile_bytes % kAlignment != 0)
      fail(DDH_INVALID_ARGUMENT, "a tile of ", tile_bytes, " bytes; give a multiple of ", kAlignment);
  }
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;
  virtual ~Tier() = default;

  // Adds a tensor in tiles of this many bytes, and returns its number. `tag`: the tag of its memory, if the tier is
  // memory.
  virtual size_t add_cut(const std::string& name, int32_t tag, uint64_t bytes, uint64_t tensor_tile_bytes) = 0;
  size_t add(const std::string& name, int32_t tag, uint64_t bytes) { return add_cut(name, tag, bytes, tile_bytes_); }
  virtual void reserve() = 0;
  // Gives up a tensor, which is not used any more. A file keeps its place.
  virtual void free(size_t /*tensor*/) {}
  // Transfers one tile between the tier and `buffer`, which must stay valid and unused until the wait.
  virtual Handle begin_read(size_t tensor, uint64_t tile, void* buffer) = 0;
  virtual Handle begin_write(size_t tensor, uint64_t tile, const void* buffer) = 0;
  // Throws the transfer's error. After a read, work on the default stream can use the tile in the buffer; after a write
  // the buffer may be used again.
  virtual void wait(Handle handle) = 0;
  [[nodiscard]] virtual Traffic traffic() const = 0;
  // The tensor's memory, up to date and with no transfer in flight, if the tier is memory; else nullptr.
  virtual float* memory(size_t) { return nullptr; }

  [[nodiscard]] uint64_t tile_bytes() const { return tile_bytes_; }
  static constexpr uint64_t round_up(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

 private:
  const uint64_t tile_bytes_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
