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

#include <algorithm>
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
  TileFrames(uint32_t frames, uint32_t tensors, uint64_t tile_bytes, TileOverlap overlap = {})
      : frames_(frames),
        tensors_(tensors),
        tile_bytes_(tile_bytes),
        overlap_(overlap),
        handles_(size_t{frames} * tensors, Tier::kDone) {}

  [[nodiscard]] uint32_t frames() const { return frames_; }
  [[nodiscard]] TileOverlap overlap() const { return overlap_; }
  // What materialize takes, for a plan.
  [[nodiscard]] uint64_t bytes() const {
    return tensors_ == 0 ? 0 : uint64_t{frames_} * tensors_ * tile_bytes_ + Tier::kAlignment;
  }
  void materialize(const Host& host, int32_t tag, int32_t memory) {
    if (tensors_ == 0) return;
    block_ = Buffer(host, tag, bytes(),
                    "frames of the offload pipeline, as many and as large as buffer_count and buffer_bytes say",
                    DDH_ALLOC_ZERO, memory);
    const auto address = reinterpret_cast<uintptr_t>(block_.data());
    base_ = static_cast<char*>(block_.data()) + (Tier::round_up(address) - address);
  }
  [[nodiscard]] float* buffer(uint32_t frame, uint32_t tensor) const {
    return reinterpret_cast<float*>(base_ + (uint64_t{frame} * tensors_ + tensor) * tile_bytes_);
  }
  // One of each frame, for FileTier::register_buffers.
  [[nodiscard]] std::vector<iovec> registrable() const {
    std::vector<iovec> out;
    for (uint32_t f = 0; f < frames_; ++f) out.push_back({buffer(f, 0), tensors_ * tile_bytes_});
    return out;
  }
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
template <class Parts, class Work>
void run_tiles(TileFrames& frames, size_t count, Parts&& parts, Work&& work) {
  const size_t n_frames = frames.frames();
  const TileOverlap overlap = frames.overlap();
  const size_t written = overlap.writes && n_frames > 2 ? 1 : 0;  // frames that are being written
  const size_t ahead = overlap.reads ? n_frames - 1 - written : 0;
  const auto wait_for = [&](size_t i) {
    const std::vector<TilePart> tile = parts(i);
    for (uint32_t t = 0; t < tile.size(); ++t)
      if (tile[t].tier != nullptr)
        tile[t].tier->wait(std::exchange(frames.handle(static_cast<uint32_t>(i % n_frames), t), Tier::kDone));
  };
  size_t next_read = 0, next_written = 0;
  for (size_t i = 0; i < count; ++i) {
    for (; next_read < count && next_read <= i + ahead; ++next_read) {
      while (next_written + n_frames <= next_read) wait_for(next_written++);  // the frame's tile before
      const std::vector<TilePart> tile = parts(next_read);
      const auto f = static_cast<uint32_t>(next_read % n_frames);
      for (uint32_t t = 0; t < tile.size(); ++t)
        if (tile[t].tier != nullptr && tile[t].is_read)
          frames.handle(f, t) = tile[t].tier->begin_read(tile[t].tensor, tile[t].tile, frames.buffer(f, t));
    }
    wait_for(i);
    const std::vector<TilePart> tile = parts(i);
    const auto f = static_cast<uint32_t>(i % n_frames);
    std::vector<float*> memory;
    for (uint32_t t = 0; t < tile.size(); ++t)
      memory.push_back(tile[t].tier != nullptr ? frames.buffer(f, t) : tile[t].resident);
    work(i, memory);
    for (uint32_t t = 0; t < tile.size(); ++t)
      if (tile[t].tier != nullptr && tile[t].is_written)
        frames.handle(f, t) = tile[t].tier->begin_write(tile[t].tensor, tile[t].tile, memory[t]);
    if (!overlap.writes) wait_for(next_written++);
  }
  while (next_written < count) wait_for(next_written++);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
