// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/tile_pipeline.hpp: work over a list of tiles whose tensors live on a tier: while one tile is worked on, the next
// is read and the one before is written.
//
// A frame holds one tile: a buffer for each of its tensors. With three frames all three go on at once; with two a write
// ends before the next read begins; one does one thing after the other. More read further ahead. Reads ahead and writes
// behind can each be switched off.
#pragma once

#include <sys/uio.h>

#include <functional>
#include <vector>

#include "ddh/sdk/tier/tier.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// One tensor's part of a tile: its place on a tier, or memory that stays. A tile's parts on tiers come first. Pointers to
// tiles are of type float* whatever the tensor's dtype.
struct TilePart {
  Tier* tier = nullptr;  // nullptr: `resident` is the memory
  size_t tensor = 0;
  uint64_t tile = 0;
  float* resident = nullptr;
  bool is_read = true;     // before the work; else its buffer holds anything then
  bool is_written = true;  // after it
};

// What goes on beside the work on a tile.
struct TileOverlap {
  bool reads = true, writes = true;
};

// The frames: one block of memory, cut into buffers that begin on Tier::kAlignment.
class TileFrames {
 public:
  TileFrames() = default;
  // At least one frame; without tensors it takes no memory.
  TileFrames(uint32_t frames, uint32_t tensors, uint64_t tile_bytes, TileOverlap overlap = {});

  [[nodiscard]] uint32_t frames() const { return frames_; }
  [[nodiscard]] TileOverlap overlap() const { return overlap_; }
  // What materialize takes, for a plan.
  [[nodiscard]] uint64_t bytes() const;
  void materialize(const Host& host, int32_t tag, int32_t memory);
  [[nodiscard]] float* buffer(uint32_t frame, uint32_t tensor) const;
  // One of each frame, for FileTier::register_buffers.
  [[nodiscard]] std::vector<iovec> registrable() const;
  // The transfer under way into or out of a buffer.
  Tier::Handle& handle(uint32_t frame, uint32_t tensor) { return handles_[size_t{frame} * tensors_ + tensor]; }

 private:
  uint32_t frames_ = 0, tensors_ = 0;
  uint64_t tile_bytes_ = 0;
  TileOverlap overlap_;
  Buffer block_;
  char* base_ = nullptr;
  std::vector<Tier::Handle> handles_;
};

// Runs `work(i, memory)` for tiles 0 .. count - 1 in order: memory[t] is tensor t of tile i, read before and written
// after where it lives on a tier and its part says so. `parts(i)` gives a tile's tensors, at most as many as a frame has
// buffers.
void run_tiles(TileFrames& frames, size_t count, const std::function<std::vector<TilePart>(size_t i)>& parts,
               const std::function<void(size_t i, const std::vector<float*>& memory)>& work);

}  // namespace DDH_HIDDEN
}  // namespace ddh
