// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of offloading: the places of values and state, and their tiles.
#include "ddh/sdk/tier/tile_plan.hpp"

#include <algorithm>

namespace ddh {
inline namespace v1 DDH_HIDDEN {
namespace {
// The size of a tensor on a tier.
uint64_t room(Place place, uint64_t bytes) { return place == Place::nvme ? Tier::round_up(bytes) : bytes; }
}  // namespace

TilePlan::TilePlan(const Host& host, const ModelLayout& model_layout, int32_t this_rank, OffloadSettings how)
    : layout(model_layout), rank(this_rank), settings(std::move(how)), slots(slot_layouts(host)) {
  list_spaces();
  place_values();
  cut_into_tiles();
  choose_frames();
}

void TilePlan::list_spaces() {
  for (const FlatSpace& space : layout.spaces) {
    Space& s = spaces.emplace_back();
    s.trained = space.trained();
    s.is_low = space.dtype != DDH_F32;
    s.dtype = space.dtype;
    s.numel = space.segment_numel(rank);
    if (s.has_master()) s.arrays.push_back(kMaster);
    for (const SlotLayout& slot : slots)
      if (s.trained && slot.is_used(space)) s.arrays.push_back(slot.index());
  }
}

void TilePlan::place_values() {
  uint64_t room = settings.values_in_memory;
  for (Space& s : spaces) {
    s.place = settings.values;
    if (s.place != Place::nvme || s.numel > room) continue;
    s.place = Place::cpu;
    room -= s.numel;
  }
}

// A frame that serves nothing, as with ratio 0, is not limited: the state that stays is updated in tiles too.
uint64_t TilePlan::most_frame_bytes() const {
  if (settings.memory_bytes) return static_cast<uint64_t>(*settings.memory_bytes);
  uint64_t values = 0, state = 0;
  for (size_t i = 0; i < spaces.size(); ++i) {
    const Space& s = spaces[i];
    if (values_away()) values += s.numel * ddh_dtype_bytes(s.dtype);
    for (const int32_t array : s.arrays) state += state_away() ? array_bytes(i, array, 0, s.numel) : 0;
  }
  const uint64_t served = values + static_cast<uint64_t>(settings.ratio * static_cast<double>(state));
  return served == 0 ? UINT64_MAX : served;
}

// A tile of values, whose dtype may be smaller, is a multiple of Tier::kAlignment too.
void TilePlan::cut_into_tiles() {
  uint64_t smallest = sizeof(float), longest = 1, trained_numel = 0, away_numel = 0;
  for (const Space& s : spaces) {
    smallest = std::min<uint64_t>(smallest, ddh_dtype_bytes(s.dtype));
    longest = std::max(longest, s.numel);
    if (s.trained) trained_numel += s.numel;
  }
  const uint64_t grain = Tier::kAlignment / smallest;
  const auto round_up = [grain](uint64_t numel) { return (numel + grain - 1) / grain * grain; };
  // The largest tiles of which all frames fit.
  const uint64_t most = most_frame_bytes(),
                 tiles_in_frames = std::max<uint64_t>(1, settings.frames * arrays_of_frame());
  const uint64_t fits = (most > Tier::kAlignment ? most - Tier::kAlignment : 0) / tiles_in_frames / sizeof(float);
  const uint64_t cut =
      std::min(round_up(std::min(settings.tile_bytes / sizeof(float), longest)), std::max(grain, fits / grain * grain));
  const double wanted = state_away() ? settings.ratio * static_cast<double>(trained_numel) : 0.0;
  for (size_t i = 0; i < spaces.size(); ++i) {
    Space& s = spaces[i];
    s.tile_numel = layout.spaces[i].whole ? std::max(grain, round_up(s.numel)) : cut;
    tile_bytes = std::max(tile_bytes, s.tile_numel * sizeof(float));
    for (const int32_t array : s.arrays) tile_bytes = std::max(tile_bytes, tile_stride(i, array));
    for (uint64_t first = 0; first < s.numel; first += s.tile_numel) {
      const uint64_t numel = std::min(s.tile_numel, s.numel - first);
      tiles.push_back({i, first / s.tile_numel, first, numel});
      if (!s.trained || static_cast<double>(away_numel) >= wanted) continue;
      s.away_numel += numel;
      away_numel += numel;
    }
  }
}

// Whole parameters, and tiles of the smallest size, may leave memory for fewer frames than wished.
void TilePlan::choose_frames() {
  const uint64_t most = most_frame_bytes();
  const auto bytes = [this](uint64_t n) { return n * arrays_of_frame() * tile_bytes + Tier::kAlignment; };
  frames = static_cast<uint32_t>(std::clamp<size_t>(tiles.size(), 1, settings.frames));
  while (frames > 1 && bytes(frames) > most) --frames;
  if (settings.memory_bytes && arrays_of_frame() > 0 && bytes(1) > most)
    fail(DDH_FAILED_PRECONDITION, settings.memory_option, " is ", most, ", but one tile of ", tile_bytes,
         " bytes for each of ", arrays_of_frame(), " arrays needs ", bytes(1), "; give at least that, or null");
}

uint64_t TilePlan::value_bytes_on(Place place) const {
  uint64_t bytes = 0;
  for (const Space& s : spaces) bytes += s.place == place ? room(place, s.numel * ddh_dtype_bytes(s.dtype)) : 0;
  return bytes;
}

uint64_t TilePlan::state_bytes_on(Place place) const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < spaces.size(); ++i)
    for (const int32_t array : spaces[i].arrays) bytes += room(place, away_bytes(i, array));
  return settings.state == place ? bytes : 0;
}

uint64_t TilePlan::resident_bytes() const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < spaces.size(); ++i)
    for (const int32_t array : spaces[i].arrays)
      bytes += array_bytes(i, array, spaces[i].away_numel, spaces[i].numel - spaces[i].away_numel);
  return bytes;
}

uint64_t TilePlan::array_bytes(size_t space, int32_t array, uint64_t first, uint64_t numel) const {
  if (array == kMaster) return numel * sizeof(float);
  return numel == 0 ? 0 : slots[static_cast<size_t>(array)].bytes(ranges(space, first, numel), numel);
}

uint64_t TilePlan::tile_stride(size_t space, int32_t array) const {
  const Space& s = spaces[space];
  return std::max(Tier::kAlignment, Tier::round_up(array_bytes(space, array, 0, std::min(s.tile_numel, s.numel))));
}

uint64_t TilePlan::away_bytes(size_t space, int32_t array) const {
  const Space& s = spaces[space];
  if (s.away_numel == 0) return 0;
  const uint64_t last = (s.away_numel - 1) / s.tile_numel;
  return last * tile_stride(space, array) +
         array_bytes(space, array, last * s.tile_numel, s.away_numel - last * s.tile_numel);
}

uint64_t TilePlan::longest_value_bytes() const {
  uint64_t bytes = 0;
  for (const Space& s : spaces) bytes = std::max(bytes, s.numel * ddh_dtype_bytes(s.dtype));
  return bytes;
}

size_t TilePlan::arrays_of_frame() const {
  size_t most = 0;
  for (const Space& s : spaces) most = std::max(most, s.arrays.size());
  return (values_away() ? 1 : 0) + (state_away() ? most : 0);
}

std::vector<ddh_range> TilePlan::ranges(size_t space, uint64_t first, uint64_t numel) const {
  const FlatSpace& s = layout.spaces[space];
  return s.ranges(s.cut.segment_offset[static_cast<size_t>(rank)] + first, numel);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
