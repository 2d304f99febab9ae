// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/tile_plan.hpp: where the values and the optimizer state of this rank's segments are stored, and their
// division into tiles. It allocates nothing, so a strategy can plan its memory with it.
//
// Values are the parameters in the dtype of views. State is the optimizer's slots, and fp32 masters if values have a low
// precision. Either all values are offloaded or none. The first `ratio` of all elements of the state is offloaded,
// in whole tiles; the rest stays on the device. A tile has the same elements of every array, each in the array's own bytes
// (slot_layout.hpp), rounded up to what files can transfer. In a space of whole
// parameters, a tile is the whole segment.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ddh/sdk/optim/slot_layout.hpp"
#include "ddh/sdk/params/layout.hpp"
#include "ddh/sdk/tier/tile_pipeline.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

enum class Place { device, cpu, nvme };

struct OffloadSettings {
  Place values = Place::device, state = Place::device;
  double ratio = 1.0;                   // fraction of the state's elements that are offloaded, in [0, 1]
  uint64_t tile_bytes = 0;              // of one fp32 array; rounded up to what files can transfer
  uint32_t frames = 3;                  // the most tiles in memory at the same time
  std::optional<int64_t> memory_bytes;  // the most bytes of all frames; nullopt: those of the offloaded data
  std::string memory_option;            // the option that gives it, for error sentences
  TileOverlap overlap;                  // transfers that overlap with the work on a tile
  uint64_t values_in_memory =
      0;                      // elements. With values on nvme, segments stay in pinned memory, in order, while they fit
  std::string folder;         // for files
  std::string folder_option;  // the option that names it, for error sentences
  std::string io;             // as make_io_engine takes it
  bool host_device = true;    // memory of the device is memory of the host, so files are read into it directly
};

struct TilePlan {
  // The master in Space::arrays. Numbers from 0 are slots of the optimizer.
  static constexpr int32_t kMaster = -1;

  // This rank's segment of one flat space of the layout.
  struct Space {
    bool trained = false, is_low = false;
    int32_t dtype = DDH_F32;      // of the values
    uint64_t numel = 0;           // of the segment
    uint64_t tile_numel = 0;      // of each tile but the last, which may be shorter
    uint64_t away_numel = 0;      // the first elements of the state are offloaded: how many
    std::vector<int32_t> arrays;  // arrays of the state: kMaster first, if there is one, then the used slots
    Place place = Place::device;  // of the values
    [[nodiscard]] bool has_master() const { return trained && is_low; }
  };
  struct Tile {
    size_t space = 0;
    uint64_t index = 0;             // in its space
    uint64_t first = 0, numel = 0;  // elements of the segment
  };

  TilePlan(const Host& host, const ModelLayout& layout, int32_t rank, OffloadSettings settings);

  [[nodiscard]] bool values_away() const { return settings.values != Place::device; }
  [[nodiscard]] bool state_away() const { return settings.state != Place::device; }
  // Bytes of an array of the state (Space::arrays) for `numel` elements of a segment from `first` on.
  [[nodiscard]] uint64_t array_bytes(size_t space, int32_t array, uint64_t first, uint64_t numel) const;
  // Bytes from one tile of an array to the next, and of all its offloaded tiles.
  [[nodiscard]] uint64_t tile_stride(size_t space, int32_t array) const;
  [[nodiscard]] uint64_t away_bytes(size_t space, int32_t array) const;

  // Bytes in one place; files take whole blocks.
  [[nodiscard]] uint64_t value_bytes_on(Place place) const;
  [[nodiscard]] uint64_t state_bytes_on(Place place) const;
  // Bytes of the state that stays on the device.
  [[nodiscard]] uint64_t resident_bytes() const;
  // Bytes of the longest segment of values.
  [[nodiscard]] uint64_t longest_value_bytes() const;
  // Arrays that one frame holds tiles of: the values, if they are offloaded, and those of the state.
  [[nodiscard]] size_t arrays_of_frame() const;
  // The parameters in `numel` elements of a segment from `first` on, or in a tile; flat_offset counts from there.
  [[nodiscard]] std::vector<ddh_range> ranges(size_t space, uint64_t first, uint64_t numel) const;
  [[nodiscard]] std::vector<ddh_range> ranges(const Tile& tile) const {
    return ranges(tile.space, tile.first, tile.numel);
  }

  const ModelLayout& layout;
  const int32_t rank;
  const OffloadSettings settings;
  std::vector<Space> spaces;      // as in the layout
  std::vector<Tile> tiles;        // of all segments, in order
  std::vector<SlotLayout> slots;  // of the optimizer
  uint64_t tile_bytes = 0;        // of the largest tile of an array
  uint32_t frames = 1;            // frames take at most settings.memory_bytes

 private:
  void list_spaces();
  void place_values();
  void cut_into_tiles();
  void choose_frames();
  // The most bytes of all frames.
  [[nodiscard]] uint64_t most_frame_bytes() const;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
