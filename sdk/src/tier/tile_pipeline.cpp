// SPDX-License-Identifier: Apache-2.0
//
// Frames of tiles, and the loop that reads ahead, works and writes behind.
#include "ddh/sdk/tier/tile_pipeline.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

TileFrames::TileFrames(uint32_t frames, uint32_t tensors, uint64_t tile_bytes, TileOverlap overlap)
    : frames_(frames),
      tensors_(tensors),
      tile_bytes_(tile_bytes),
      overlap_(overlap),
      handles_(size_t{frames} * tensors, Tier::kDone) {}

uint64_t TileFrames::bytes() const {
  return tensors_ == 0 ? 0 : uint64_t{frames_} * tensors_ * tile_bytes_ + Tier::kAlignment;
}

void TileFrames::materialize(const Host& host, int32_t tag, int32_t memory) {
  if (tensors_ == 0) return;
  block_ = Buffer(host, tag, bytes(), "frames of the offload pipeline, which offload_memory_bytes limits",
                  DDH_ALLOC_ZERO, memory);
  const auto address = reinterpret_cast<uintptr_t>(block_.data());
  base_ = static_cast<char*>(block_.data()) + (Tier::round_up(address) - address);
}

float* TileFrames::buffer(uint32_t frame, uint32_t tensor) const {
  return reinterpret_cast<float*>(base_ + (uint64_t{frame} * tensors_ + tensor) * tile_bytes_);
}

std::vector<iovec> TileFrames::registrable() const {
  std::vector<iovec> out;
  for (uint32_t f = 0; f < frames_; ++f) out.push_back({buffer(f, 0), tensors_ * tile_bytes_});
  return out;
}

void run_tiles(TileFrames& frames, size_t count, const std::function<std::vector<TilePart>(size_t i)>& parts,
               const std::function<void(size_t i, const std::vector<float*>& memory)>& work) {
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
