// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/tile_pipeline.hpp: runs work over a list of tiles on a tier: while one tile is processed, the next one
// is read and the previous one is written.
//
// A frame holds one tile: a buffer for each of its tensors. With three frames all three overlap. With two, a write ends
// before the next read begins. With one, nothing overlaps. More frames read further ahead. Reading ahead and writing
// behind can each be switched off.
#pragma once

#include <sys/uio.h>

#include <functional>
#include <vector>

#include "ddh/sdk/tier/tier.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// One tensor's part of a tile: one transfer from a tier, or resident memory. A tile's parts on tiers come first. Pointers to
// tiles have type float* for every dtype of the tensor.
struct TilePart {
  Tier* tier = nullptr;  // nullptr: `resident` is the memory
  size_t tensor = 0;
  uint64_t tile = 0;
  float* resident = nullptr;
  bool is_read = true;     // before the work; else the content of its buffer is undefined
  bool is_written = true;  // after it
};

// The transfers that overlap with the work on a tile.
struct TileOverlap {
  bool reads = true, writes = true;
};

// The frames: one block of memory, divided into buffers that are aligned to Tier::kAlignment.
class TileFrames {
 public:
  TileFrames() = default;
  // At least one frame; without tensors it takes no memory.
  TileFrames(uint32_t frames, uint32_t tensors, uint64_t tile_bytes, TileOverlap overlap = {});

  [[nodiscard]] uint32_t frames() const { return frames_; }
  [[nodiscard]] TileOverlap overlap() const { return overlap_; }
  // Bytes that materialize allocates, for a plan.
  [[nodiscard]] uint64_t bytes() const;
  void materialize(const Host& host, int32_t tag, int32_t memory);
  [[nodiscard]] float* buffer(uint32_t frame, uint32_t tensor) const;
  // One of each frame, for FileTier::register_buffers.
  [[nodiscard]] std::vector<iovec> registrable() const;
  // The transfer in flight into or out of a buffer.
  Tier::Handle& handle(uint32_t frame, uint32_t tensor) { return handles_[size_t{frame} * tensors_ + tensor]; }

 private:
  uint32_t frames_ = 0, tensors_ = 0;
  uint64_t tile_bytes_ = 0;
  TileOverlap overlap_;
  Buffer block_;
  char* base_ = nullptr;
  std::vector<Tier::Handle> handles_;
};

// Runs `work(i, memory)` for tiles 0 .. count - 1 in order. memory[t] is tensor t of tile i; if it is on a tier, it is
// read before and written afterwards, as its part says. `parts(i)` gives a tile's tensors, at most one per buffer of a
// frame.
void run_tiles(TileFrames& frames, size_t count, const std::function<std::vector<TilePart>(size_t i)>& parts,
               const std::function<void(size_t i, const std::vector<float*>& memory)>& work);

}  // namespace DDH_HIDDEN
}  // namespace ddh
