// SPDX-License-Identifier: Apache-2.0
//
// The passes over the tiles: first values, norms, update, and values from masters.
#include <algorithm>

#include "offloaded_parts.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

namespace {
bool needs_norms(const Host& host, const ModelLayout& layout) {
  for (const FlatSpace& space : layout.spaces)
    for (const PlacedParam& p : space.params)
      if (host.optim->needs(host.h, p.param) == DDH_NEEDS_PARAM_NORM) return true;
  return false;
}
}  // namespace

void OffloadedState::init(const Values& values) {
  std::vector<const Tile*> every;
  for (const Tile& tile : plan_.tiles) every.push_back(&tile);
  run(Pass::init, every, values, [&](const Tile& tile, const Arrays& a) {
    const TilePlan::Space& s = plan_.spaces[tile.space];
    for (const ddh_range& r : plan_.ranges(tile)) {
      if (s.is_low && !s.trained) {
        init_rounded(host_, r, s.dtype, a.values);
        continue;
      }
      float* const to = (s.is_low ? a.state[0] : static_cast<float*>(a.values)) + r.flat_offset;
      call(host_.params->init_range, host_.h, r.param, r.param_offset, r.numel, to);
    }
    round_masters(tile, a);
  });
}

void OffloadedState::prepare(const Values& values, const Grad& grad) {
  if (!needs_norms(host_, plan_.layout)) return;
  const Span span(host_, DDH_SPAN_OPTIM, "offloaded norms");
  run_optimizer(Pass::prepare, values, grad);
}

void OffloadedState::update(const Values& values, const Grad& grad) {
  const Span span(host_, DDH_SPAN_OPTIM, "offloaded update");
  run_optimizer(Pass::update, values, grad);
}

void OffloadedState::run_optimizer(Pass pass, const Values& values, const Grad& grad) {
  std::vector<const Tile*> with_gradient;
  for (const Tile& tile : plan_.tiles)
    if (grad(tile.space) != nullptr) with_gradient.push_back(&tile);
  std::vector<void*> slots(host_.optim->slot_count(host_.h));
  run(pass, with_gradient, values, [&](const Tile& tile, const Arrays& a) {
    const TilePlan::Space& s = plan_.spaces[tile.space];
    std::fill(slots.begin(), slots.end(), nullptr);
    for (size_t i = 0; i < s.arrays.size(); ++i)
      if (s.arrays[i] != TilePlan::kMaster) slots[static_cast<size_t>(s.arrays[i])] = a.state[i];
    const std::vector<ddh_range> pieces = plan_.ranges(tile);
    const float* const gradient = grad(tile.space) + tile.first;
    const ddh_optim_shard shard =
        shard_of(pieces, {a.values, s.dtype, s.has_master() ? a.state[0] : nullptr, &slots}, &gradient);
    if (pass == Pass::prepare) {
      call(host_.optim->prepare, host_.h, &shard, 0, 1, nullptr);
      return;
    }
    if (shard.lowp != nullptr && plan_.values_away()) zero_gaps(tile, pieces, a.values);
    call(host_.optim->update, host_.h, &shard, nullptr);
  });
}

void OffloadedState::refresh(const Values& values) {
  std::vector<const Tile*> with_master;
  for (const Tile& tile : plan_.tiles)
    if (plan_.spaces[tile.space].has_master()) with_master.push_back(&tile);
  run(Pass::refresh, with_master, values, [&](const Tile& tile, const Arrays& a) {
    if (plan_.values_away()) zero_gaps(tile, plan_.ranges(tile), a.values);
    round_masters(tile, a);
  });
}

void OffloadedState::run(Pass pass, const std::vector<const Tile*>& tiles, const Values& values, const Work& work) {
  run_tiles(
      frames_, tiles.size(), [&](size_t i) { return parts_of(*tiles[i], pass, values(tiles[i]->space)); },
      [&](size_t i, const std::vector<float*>& memory) {
        const auto state = memory.begin() + (plan_.values_away() ? 1 : 0);
        const auto n = static_cast<std::ptrdiff_t>(plan_.spaces[tiles[i]->space].arrays.size());
        // With files the host reads and writes the frames itself.
        const bool waits = files_ && !plan_.settings.host_device;
        const auto wait = [&] { waits ? call(host_.stream->synchronize, host_.h, nullptr) : void(); };
        wait();
        work(*tiles[i], Arrays{plan_.values_away() ? memory.front() : memory.back(), {state, state + n}});
        wait();
      });
}

// Parts on tiers come first: values, state; or state, values. Low-precision values are computed from the masters, so
// only fp32 values are read before an update.
std::vector<TilePart> OffloadedState::parts_of(const Tile& tile, Pass pass, void* segment_values) {
  const TilePlan::Space& s = plan_.spaces[tile.space];
  const Held& held = held_[tile.space];
  const bool updates = pass == Pass::prepare || pass == Pass::update;
  const bool values_are_read = pass == Pass::init || (updates && !s.is_low);
  TilePart values{plan_.values_away() ? tier_of(s.place) : nullptr,
                  held.values,
                  tile.index,
                  nullptr,
                  values_are_read,
                  pass != Pass::prepare};
  if (!plan_.values_away()) values.resident = static_cast<float*>(element_at(segment_values, s.dtype, tile.first));
  std::vector<TilePart> out;
  if (plan_.values_away()) out.push_back(values);
  for (size_t i = 0; i < s.arrays.size(); ++i) {
    const bool is_master = s.arrays[i] == TilePlan::kMaster;
    const bool is_written =
        pass == Pass::update || (pass == Pass::prepare && !is_master) || (pass == Pass::init && is_master);
    if (tile.first < s.away_numel)
      out.push_back(
          {tier_of(plan_.settings.state), held.tensors[i], tile.index, nullptr, updates || is_master, is_written});
    else
      out.push_back({nullptr, 0, 0,
                     static_cast<float*>(element_at(
                         held.resident[i].data(), DDH_U8,
                         plan_.array_bytes(tile.space, s.arrays[i], s.away_numel, tile.first - s.away_numel)))});
  }
  if (!plan_.values_away()) out.push_back(values);
  return out;
}

void OffloadedState::round_masters(const Tile& tile, const Arrays& arrays) const {
  const TilePlan::Space& s = plan_.spaces[tile.space];
  if (!s.has_master()) return;
  for (const ddh_range& r : plan_.ranges(tile))
    round_to(host_, element_at(arrays.values, s.dtype, r.flat_offset), s.dtype, arrays.state[0] + r.flat_offset,
             r.numel);
}

// A buffer that was not read has values of another tile in this tile's padding.
void OffloadedState::zero_gaps(const Tile& tile, const std::vector<ddh_range>& pieces, void* values) const {
  const int32_t dtype = plan_.spaces[tile.space].dtype;
  uint64_t end = 0;
  const auto fill = [&](uint64_t next) {
    if (next > end) call(host_.flatops->fill, host_.h, element_at(values, dtype, end), dtype, next - end, 0.0, nullptr);
  };
  for (const ddh_range& r : pieces) {
    fill(r.flat_offset);
    end = r.flat_offset + r.numel;
  }
  fill(tile.numel);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
