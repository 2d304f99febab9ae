// SPDX-License-Identifier: Apache-2.0
//
// Flat spaces and their layout: how parameters are grouped, placed and cut.
#include "ddh/sdk/params/layout.hpp"

#include <algorithm>

#include "layout_maker.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

Cut::Cut(std::vector<uint64_t> numel) : segment_numel(std::move(numel)) {
  for (size_t r = 0; r < segment_numel.size(); ++r)
    segment_offset.push_back(r == 0 ? 0 : segment_offset.back() + segment_numel[r - 1]);
}

Cut::Cut(uint64_t numel, int32_t world_size) {
  const uint64_t blocks = numel / kGrid, ranks = static_cast<uint64_t>(world_size);
  for (uint64_t r = 0; r < ranks; ++r) {
    segment_offset.push_back(r == 0 ? 0 : segment_offset.back() + segment_numel.back());
    segment_numel.push_back((blocks / ranks + (r < blocks % ranks ? 1 : 0)) * kGrid);
  }
}

uint64_t FlatSpace::value_segment_bytes(int32_t rank) const { return segment_numel(rank) * ddh_dtype_bytes(dtype); }

std::vector<ddh_range> FlatSpace::ranges(uint64_t offset, uint64_t range_numel) const {
  std::vector<ddh_range> out;
  for (const PlacedParam& p : params) {
    const uint64_t first = std::max(p.offset, offset);
    const uint64_t last = std::min(p.offset + p.numel, offset + range_numel);
    if (first < last) out.push_back({p.param, 0, first - p.offset, first - offset, last - first});
  }
  return out;
}

std::vector<ddh_range> FlatSpace::segment_ranges(int32_t rank) const {
  const auto r = static_cast<size_t>(rank);
  return ranges(cut.segment_offset[r], cut.segment_numel[r]);
}

ModelLayout::ModelLayout(const ddh_attach_args& args, const std::vector<bool>& whole, const Grouping& grouping,
                         const std::vector<bool>& coded)
    : programs(run_programs(args)),
      place(args.model->n_params),
      unit_uses(args.model->n_units),
      ranks(GroupRanks::strided(0, 1, args.world_size, args.rank, args.node_of)) {
  const ddh_model_desc& model = *args.model;
  LayoutMaker make(*this);
  const std::vector<uint64_t> grad_bytes = make.grad_bytes_of_units(model, coded);
  for (uint32_t p = 0; p < model.n_params; ++p) {
    const ddh_param_desc& param = *model.params[p];
    LayoutMaker::Kind kind;
    kind.needed_whole = !whole.empty() && whole[p];
    kind.persistent = param.numel * sizeof(float) <= grouping.persistent_bytes;
    kind.coded = !coded.empty() && coded[p];
    kind.in_blocks = grouping.whole_grad_bytes > 0 && param.grad_block > 0 && !kind.persistent &&
                     grad_bytes[static_cast<size_t>(param.owner_unit)] > grouping.whole_grad_bytes;
    kind.slot_use = grouping.slot_use.empty() ? 0 : grouping.slot_use[p];
    make.join_space(args, static_cast<int32_t>(p), kind);
  }
  make.find_shared(model);
  make.fill_buckets(grouping);
  const std::vector<int32_t> owners = make.deal_whole_params(args.world_size);
  for (FlatSpace& space : spaces) {
    make.place_params(space, owners);
    space.cut =
        space.whole ? LayoutMaker::cut_at_owners(space, owners, args.world_size) : Cut(space.numel, args.world_size);
  }
  for (uint32_t u = 0; u < model.n_units; ++u) {
    for (uint32_t i = 0; i < model.units[u]->n_params; ++i) {
      const size_t space = place[static_cast<size_t>(model.units[u]->params[i])].space;
      std::vector<size_t>& uses = unit_uses[u];
      if (std::find(uses.begin(), uses.end(), space) == uses.end()) uses.push_back(space);
    }
  }
}

std::vector<size_t> ModelLayout::trained_spaces(int32_t unit, int32_t program) const {
  std::vector<size_t> out;
  for (size_t s = 0; s < spaces.size(); ++s) {
    if (spaces[s].is_ready_after(unit, program)) out.push_back(s);
  }
  return out;
}

uint64_t LayoutMaker::trained_by(int32_t param) const {
  uint64_t bits = 0;
  for (const RunProgram& program : programs) {
    if (program.trains(param)) bits |= uint64_t{1} << program.program;
  }
  return bits;
}

std::vector<uint64_t> LayoutMaker::grad_bytes_of_units(const ddh_model_desc& model,
                                                       const std::vector<bool>& coded) const {
  std::vector<uint64_t> bytes(model.n_units, 0);
  for (uint32_t p = 0; p < model.n_params; ++p) {
    if (trained_by(static_cast<int32_t>(p)) == 0 || (!coded.empty() && coded[p])) continue;
    bytes[static_cast<size_t>(model.params[p]->owner_unit)] += round_up_to_grid(model.params[p]->numel) * sizeof(float);
  }
  return bytes;
}

void LayoutMaker::join_space(const ddh_attach_args& args, int32_t param, Kind kind) {
  const ddh_model_desc& model = *args.model;
  const int32_t unit = model.params[param]->owner_unit, own_dtype = model.params[param]->compute_dtype;
  const int32_t dtype = own_dtype != 0 ? own_dtype : args.compute_dtype;
  const uint64_t trainers = trained_by(param);
  const bool whole = kind.needed_whole && trainers != 0;  // untrained parameters are not updated
  const bool coded = kind.coded && trainers != 0;
  const auto same_kind = [&](const FlatSpace& s) {
    return !coded && !s.coded && s.unit == unit && s.trained_by == trainers && s.whole == whole &&
           s.persistent == kind.persistent && s.dtype == dtype;
  };
  const auto same = [&](const FlatSpace& s) { return same_kind(s) && s.slot_use == kind.slot_use; };
  auto space = std::find_if(spaces.begin(), spaces.end(), same);
  if (space == spaces.end()) {
    FlatSpace fresh;
    fresh.unit = unit;
    fresh.trained_by = trainers;
    fresh.dtype = dtype;
    fresh.whole = whole;
    fresh.persistent = kind.persistent;
    fresh.coded = coded;
    fresh.name = str(coded ? model.params[param]->name : model.units[unit]->name, kind.persistent ? " (small)" : "",
                     trainers == 0 ? " (frozen)"
                     : whole       ? " (whole)"
                                   : "",
                     dtype != args.compute_dtype ? " (fp32)" : "",
                     std::any_of(spaces.begin(), spaces.end(), same_kind) ? str(" (slots ", kind.slot_use, ")") : "");
    fresh.slot_use = kind.slot_use;
    space = spaces.insert(spaces.end(), std::move(fresh));
  }
  place[static_cast<size_t>(param)].space = static_cast<size_t>(space - spaces.begin());
  space->params.push_back({param, 0, model.params[param]->numel, kind.in_blocks && trainers != 0 && !whole && !coded});
}

std::vector<int32_t> LayoutMaker::deal_whole_params(int32_t world_size) const {
  std::vector<PlacedParam> all;
  for (const FlatSpace& space : spaces) {
    if (space.whole) all.insert(all.end(), space.params.begin(), space.params.end());
  }
  std::sort(all.begin(), all.end(), [](const PlacedParam& a, const PlacedParam& b) {
    return a.numel != b.numel ? a.numel > b.numel : a.param < b.param;
  });
  std::vector<int32_t> owners(place.size(), -1);
  std::vector<uint64_t> load(static_cast<size_t>(world_size), 0);
  for (const PlacedParam& p : all) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += round_up_to_grid(p.numel);
    owners[static_cast<size_t>(p.param)] = static_cast<int32_t>(least - load.begin());
  }
  return owners;
}

void LayoutMaker::place_params(FlatSpace& space, const std::vector<int32_t>& owners) {
  const auto owner = [&](const PlacedParam& p) { return owners[static_cast<size_t>(p.param)]; };
  std::stable_sort(space.params.begin(), space.params.end(), [&](const PlacedParam& a, const PlacedParam& b) {
    return owner(a) != owner(b) ? owner(a) < owner(b) : a.in_blocks && !b.in_blocks;
  });
  for (PlacedParam& p : space.params) {
    p.offset = space.numel;
    place[static_cast<size_t>(p.param)].offset = p.offset;
    space.numel += round_up_to_grid(p.numel);
    if (p.in_blocks) space.blocks_numel = space.numel;
  }
}

Cut LayoutMaker::cut_at_owners(const FlatSpace& space, const std::vector<int32_t>& owners, int32_t world_size) {
  std::vector<uint64_t> numel(static_cast<size_t>(world_size), 0);
  for (const PlacedParam& p : space.params) {
    numel[static_cast<size_t>(owners[static_cast<size_t>(p.param)])] += round_up_to_grid(p.numel);
  }
  return Cut(std::move(numel));
}

void append_state(std::vector<ddh_state_entry>& out, const std::vector<ddh_range>& ranges, int32_t kind, int32_t slot,
                  int32_t dtype, void* base, Replica replica, int32_t memory) {
  for (const ddh_range& r : ranges) {
    out.push_back({sizeof(ddh_state_entry), r.param, kind, slot, dtype, memory, r.param_offset, r.numel,
                   element_at(base, dtype, r.flat_offset), replica.index, replica.count, nullptr, DDH_SCOPE_SHARED, 0});
  }
}

uint32_t reductions_per_step(const ddh_attach_args& args) {
  return args.reduce_order == DDH_RANK_FIRST ? args.grad_accum_steps : 1;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
