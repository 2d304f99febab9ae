// SPDX-License-Identifier: Apache-2.0
//
// The entries of a checkpoint for offloaded state, and the elements of those that are on files.
#include <algorithm>
#include <cstring>

#include "ddh/sdk/strategy.hpp"
#include "offloaded_parts.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

void OffloadedState::append_state_entries(std::vector<ddh_state_entry>& out, size_t space, void* values) {
  const TilePlan::Space& s = plan_.spaces[space];
  const Held& held = held_[space];
  if (!s.has_master()) {
    const Kind kind{DDH_STATE_PARAM, 0, s.dtype};
    if (plan_.values_away())
      append_away(out, space, kind, s.place, held.values);
    else
      append_state(out, plan_.ranges(space, 0, s.numel), kind.kind, kind.slot, kind.dtype, values, {});
  }
  for (size_t i = 0; i < s.arrays.size(); ++i) {
    const bool is_master = s.arrays[i] == TilePlan::kMaster;
    const std::vector<ddh_range> resident = plan_.ranges(space, s.away_numel, s.numel - s.away_numel);
    if (is_master && s.away_numel > 0)
      append_away(out, space, {DDH_STATE_PARAM, 0, DDH_F32}, plan_.settings.state, held.tensors[i]);
    else if (s.away_numel > 0)
      append_away_slot(out, space, s.arrays[i], held.tensors[i]);
    if (is_master && s.away_numel < s.numel)
      append_state(out, resident, DDH_STATE_PARAM, 0, DDH_F32, held.resident[i].data(), {});
    else if (s.away_numel < s.numel)
      plan_.slots[static_cast<size_t>(s.arrays[i])].append_state(out, resident, held.resident[i].data(), {});
  }
}

// Tiles of a slot may be longer than their elements, so a range that lies in several tiles has an entry for each.
void OffloadedState::append_away_slot(std::vector<ddh_state_entry>& out, size_t space, int32_t array, size_t tensor) {
  const TilePlan::Space& s = plan_.spaces[space];
  const SlotLayout& slot = plan_.slots[static_cast<size_t>(array)];
  const uint64_t stride = plan_.tile_stride(space, array), width = ddh_dtype_bytes(slot.dtype());
  float* const base = tier_of(plan_.settings.state)->memory(tensor);
  for (uint64_t first = 0; first < s.away_numel; first += s.tile_numel) {
    const uint64_t numel = std::min(s.tile_numel, s.away_numel - first);
    for (const SlotLayout::Part& part : slot.parts(plan_.ranges(space, first, numel))) {
      const uint64_t byte = first / s.tile_numel * stride + part.first_byte;
      if (base == nullptr) entries_[static_cast<uint32_t>(out.size())] = {tensor, byte, width, stride};
      out.push_back({sizeof(ddh_state_entry), part.param, DDH_STATE_SLOT, array, slot.dtype(),
                     base == nullptr ? DDH_MEM_FILE : DDH_MEM_PINNED, part.offset, part.numel,
                     base == nullptr ? nullptr : element_at(base, DDH_U8, byte), 0, 1, nullptr, DDH_SCOPE_SHARED, 0});
    }
  }
}

void OffloadedState::append_away(std::vector<ddh_state_entry>& out, size_t space, const Kind& kind, Place place,
                                 size_t tensor) {
  const TilePlan::Space& s = plan_.spaces[space];
  const bool is_values = kind.kind == DDH_STATE_PARAM && !s.has_master();
  void* const base = tier_of(place)->memory(tensor);
  const uint64_t bytes = ddh_dtype_bytes(kind.dtype);
  for (const ddh_range& r : plan_.ranges(space, 0, is_values ? s.numel : s.away_numel)) {
    if (base == nullptr)
      entries_[static_cast<uint32_t>(out.size())] = {tensor, r.flat_offset * bytes, bytes, s.tile_numel * bytes};
    out.push_back({sizeof(ddh_state_entry), r.param, kind.kind, kind.slot, kind.dtype,
                   base == nullptr ? DDH_MEM_FILE : DDH_MEM_PINNED, r.param_offset, r.numel,
                   base == nullptr ? nullptr : element_at(base, kind.dtype, r.flat_offset), 0, 1, nullptr,
                   DDH_SCOPE_SHARED, 0});
  }
}

void OffloadedState::copy_entry(uint32_t entry, uint64_t offset, uint64_t numel, void* dst, const void* src) {
  const auto at = entries_.find(entry);
  if (at == entries_.end()) no_such_state_entry(entry);
  const AwayEntry& e = at->second;
  auto* const buffer = reinterpret_cast<char*>(frames_.buffer(0, 0));
  const uint64_t begin = e.first_byte + offset * e.element_bytes, end = begin + numel * e.element_bytes;
  for (uint64_t byte = begin; byte < end;) {
    const uint64_t tile = byte / e.tile_bytes, inside = byte % e.tile_bytes;
    const uint64_t bytes = std::min(e.tile_bytes - inside, end - byte);
    files_->wait(files_->begin_read(e.tensor, tile, buffer));
    if (dst != nullptr) {
      std::memcpy(static_cast<char*>(dst) + (byte - begin), buffer + inside, bytes);
    } else {
      std::memcpy(buffer + inside, static_cast<const char*>(src) + (byte - begin), bytes);
      files_->wait(files_->begin_write(e.tensor, tile, buffer));
    }
    byte += bytes;
  }
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
