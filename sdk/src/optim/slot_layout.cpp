// SPDX-License-Identifier: Apache-2.0
#include "ddh/sdk/optim/slot_layout.hpp"

#include <algorithm>
#include <map>

namespace ddh {
inline namespace v1 DDH_HIDDEN {
namespace {

constexpr uint64_t blocks_of(uint64_t numel) { return (numel + kGrid - 1) / kGrid; }

}  // namespace

SlotLayout::SlotLayout(const Host& host, uint32_t index) : host_(&host), index_(static_cast<int32_t>(index)) {
  desc_.struct_size = sizeof desc_;
  call(host.optim->slot, host.h, index, &desc_);
}

bool SlotLayout::is_used(const FlatSpace& space) const {
  return std::any_of(space.params.begin(), space.params.end(), [&](const PlacedParam& p) {
    return host_->optim->slot_used(host_->h, static_cast<uint32_t>(index_), p.param) != 0;
  });
}

uint64_t SlotLayout::bytes(const std::vector<ddh_range>& ranges, uint64_t numel) const {
  if (desc_.extent == DDH_SLOT_PER_BLOCK) return numel / kGrid * width();
  if (desc_.extent != DDH_SLOT_SIZED) return numel * width();
  uint64_t sized = 0;
  for (const ddh_range& r : ranges) sized += round_up_to_grid(sized_numel(r.param));
  return sized * width();
}

std::vector<SlotLayout::Part> SlotLayout::parts(const std::vector<ddh_range>& ranges) const {
  std::vector<Part> out;
  uint64_t sized = 0;  // elements so far
  for (const ddh_range& r : ranges) {
    if (desc_.extent == DDH_SLOT_PER_BLOCK) {
      out.push_back({r.param, r.param_offset / kGrid, blocks_of(r.numel), r.flat_offset / kGrid * width()});
    } else if (desc_.extent != DDH_SLOT_SIZED) {
      out.push_back({r.param, r.param_offset, r.numel, r.flat_offset * width()});
    } else if (const uint64_t numel = sized_numel(r.param); numel > 0) {
      out.push_back({r.param, 0, numel, sized * width()});
      sized += round_up_to_grid(numel);
    }
  }
  return out;
}

void SlotLayout::append_state(std::vector<ddh_state_entry>& out, const std::vector<ddh_range>& ranges, void* base,
                              Replica replica, int32_t memory) const {
  for (const Part& part : parts(ranges)) {
    const ddh_range range{part.param, 0, part.offset, part.first_byte / width(), part.numel};
    ddh::append_state(out, {range}, DDH_STATE_SLOT, index_, desc_.dtype, base, replica, memory);
  }
}

uint64_t SlotLayout::sized_numel(int32_t param) const {
  if (!DDH_CAN(host_->optim, ddh_optim_api, slot_numel))
    fail(DDH_UNIMPLEMENTED, "slot '", desc_.name, "' of the optimizer has a size of its own, which this ddhost does ",
         "not tell (ddh.optim slot_numel); update ddhost, or choose another optimizer");
  return host_->optim->slot_numel(host_->h, static_cast<uint32_t>(index_), param);
}

std::vector<SlotLayout> slot_layouts(const Host& host) {
  std::vector<SlotLayout> out;
  for (uint32_t i = 0; i < host.optim->slot_count(host.h); ++i) out.emplace_back(host, i);
  return out;
}

std::vector<int32_t> slot_use(const Host& host, const ddh_model_desc& model) {
  const uint32_t n_slots = host.optim->slot_count(host.h);
  std::map<std::vector<bool>, int32_t> numbers;
  std::vector<int32_t> out;
  for (uint32_t p = 0; p < model.n_params; ++p) {
    std::vector<bool> used;
    for (uint32_t i = 0; i < n_slots; ++i)
      used.push_back(host.optim->slot_used(host.h, i, static_cast<int32_t>(p)) != 0);
    out.push_back(numbers.emplace(std::move(used), static_cast<int32_t>(numbers.size())).first->second);
  }
  return out;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
