// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/layout.hpp: shard arithmetic. How parameters lie in flat spaces, how a flat space is cut into one segment per
// rank, and how the views that units get point into them. No memory, no communication: numbers only.
#pragma once

#include <algorithm>
#include <vector>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// Parameters start, and shards are cut, on this grid (elements): a cache line of floats times four, and the block of
// the exact norm.
inline constexpr uint64_t kGrid = 64;

inline constexpr uint64_t round_up_to_grid(uint64_t numel) { return (numel + kGrid - 1) / kGrid * kGrid; }

struct PlacedParam {
  int32_t param;
  uint64_t offset;  // first element in the flat space, a multiple of kGrid
  uint64_t numel;   // without padding
};

// One segment per rank of a flat space: contiguous, in rank order; as even as the grid allows, or as given.
struct Cut {
  Cut() = default;
  explicit Cut(std::vector<uint64_t> numel) : segment_numel(std::move(numel)) {
    for (size_t r = 0; r < segment_numel.size(); ++r)
      segment_offset.push_back(r == 0 ? 0 : segment_offset.back() + segment_numel[r - 1]);
  }
  Cut(uint64_t numel, int32_t world_size) {
    const uint64_t blocks = numel / kGrid, ranks = static_cast<uint64_t>(world_size);
    for (uint64_t r = 0; r < ranks; ++r) {
      segment_offset.push_back(r == 0 ? 0 : segment_offset.back() + segment_numel.back());
      segment_numel.push_back((blocks / ranks + (r < blocks % ranks ? 1 : 0)) * kGrid);
    }
  }
  std::vector<uint64_t> segment_numel, segment_offset;  // per rank
};

// The flat space of one layout group: the parameters of one unit that the same programs train (or none), and that the
// optimizer needs whole, or not.
struct FlatSpace {
  int32_t unit = 0;
  uint64_t trained_by = 0;  // bit g: program g trains these parameters
  bool whole = false;       // segments end where parameters end
  bool shared = false;      // used more than once in a pass: tied weights, a unit that occurs twice
  int32_t dtype = DDH_F32;  // of the values that units see; gradients are fp32
  std::string name;         // "h.3"
  std::vector<PlacedParam> params;
  uint64_t numel = 0;  // padded
  Cut cut;

  [[nodiscard]] bool trained() const { return trained_by != 0; }
  [[nodiscard]] bool trained_in(int32_t program) const { return (trained_by >> program & 1) != 0; }
  [[nodiscard]] uint64_t segment_numel(int32_t rank) const { return cut.segment_numel[static_cast<size_t>(rank)]; }
  [[nodiscard]] uint64_t value_bytes() const { return numel * ddh_dtype_bytes(dtype); }
  [[nodiscard]] uint64_t value_segment_bytes(int32_t rank) const {
    return segment_numel(rank) * ddh_dtype_bytes(dtype);
  }
  [[nodiscard]] uint64_t grad_bytes() const { return numel * sizeof(float); }
  [[nodiscard]] uint64_t grad_segment_bytes(int32_t rank) const { return segment_numel(rank) * sizeof(float); }

  // The pieces of parameters inside [offset, offset + numel), with flat_offset counted from `offset`.
  [[nodiscard]] std::vector<ddh_range> ranges(uint64_t offset, uint64_t range_numel) const {
    std::vector<ddh_range> out;
    for (const PlacedParam& p : params) {
      const uint64_t first = std::max(p.offset, offset);
      const uint64_t last = std::min(p.offset + p.numel, offset + range_numel);
      if (first < last) out.push_back({p.param, 0, first - p.offset, first - offset, last - first});
    }
    return out;
  }
  [[nodiscard]] std::vector<ddh_range> segment_ranges(int32_t rank) const {
    const auto r = static_cast<size_t>(rank);
    return ranges(cut.segment_offset[r], cut.segment_numel[r]);
  }
};

// The layout of a whole model: which flat spaces there are, where each parameter lies, what each unit uses.
class ModelLayout {
 public:
  ModelLayout() = default;
  // `whole`: per parameter, whether it must stay on one rank; empty: any may be cut.
  ModelLayout(const ddh_model_desc& model, int32_t world_size, int32_t compute_dtype,
              const std::vector<bool>& whole = {})
      : place(model.n_params), unit_uses(model.n_units) {
    for (uint32_t p = 0; p < model.n_params; ++p) {
      join_space(model, static_cast<int32_t>(p), !whole.empty() && whole[p]);
    }
    const std::vector<int32_t> owners = deal_whole_params(world_size);
    for (FlatSpace& space : spaces) {
      space.dtype = compute_dtype;
      place_params(space, owners);
      space.cut = space.whole ? cut_at_owners(space, owners, world_size) : Cut(space.numel, world_size);
    }
    for (uint32_t u = 0; u < model.n_units; ++u) {
      for (uint32_t i = 0; i < model.units[u]->n_params; ++i) {
        const size_t space = place[static_cast<size_t>(model.units[u]->params[i])].space;
        std::vector<size_t>& uses = unit_uses[u];
        if (std::find(uses.begin(), uses.end(), space) == uses.end()) uses.push_back(space);
        if (spaces[space].unit != static_cast<int32_t>(u) || occurs_twice(model, static_cast<int32_t>(u)))
          spaces[space].shared = true;
      }
    }
  }

  struct Place {
    size_t space = 0;
    uint64_t offset = 0;
  };
  std::vector<FlatSpace> spaces;
  std::vector<Place> place;                    // per parameter
  std::vector<std::vector<size_t>> unit_uses;  // per unit: the spaces it reads

  // The spaces of a unit's own parameters that a program trains: what grads_ready is about.
  [[nodiscard]] std::vector<size_t> trained_spaces(int32_t unit, int32_t program) const {
    std::vector<size_t> out;
    for (size_t s = 0; s < spaces.size(); ++s) {
      if (spaces[s].unit == unit && spaces[s].trained_in(program)) out.push_back(s);
    }
    return out;
  }

 private:
  static bool occurs_twice(const ddh_model_desc& model, int32_t unit) {
    for (uint32_t g = 0; g < model.n_programs; ++g) {
      const ddh_program_desc& program = *model.programs[g];
      if (std::count(program.units, program.units + program.n_units, unit) > 1) return true;
    }
    return false;
  }

  static uint64_t trained_by(const ddh_model_desc& model, int32_t param) {
    if ((model.params[param]->attributes & DDH_PARAM_FROZEN) != 0) return 0;
    uint64_t programs = 0;
    for (uint32_t g = 0; g < model.n_programs; ++g) {
      const ddh_program_desc& program = *model.programs[g];
      const bool trains = program.trainable == nullptr || program.trainable[param] != 0;
      if (program.kind != DDH_PROGRAM_EVAL && trains) programs |= uint64_t{1} << g;
    }
    return programs;
  }

  void join_space(const ddh_model_desc& model, int32_t param, bool needed_whole) {
    const int32_t unit = model.params[param]->owner_unit;
    const uint64_t programs = trained_by(model, param);
    const bool whole = needed_whole && programs != 0;  // nobody updates what is not trained
    const auto same = [&](const FlatSpace& s) {
      return s.unit == unit && s.trained_by == programs && s.whole == whole;
    };
    auto space = std::find_if(spaces.begin(), spaces.end(), same);
    if (space == spaces.end()) {
      FlatSpace fresh;
      fresh.unit = unit;
      fresh.trained_by = programs;
      fresh.whole = whole;
      fresh.name = str(model.units[unit]->name, programs == 0 ? " (frozen)" : whole ? " (whole)" : "");
      space = spaces.insert(spaces.end(), std::move(fresh));
    }
    place[static_cast<size_t>(param)].space = static_cast<size_t>(space - spaces.begin());
    space->params.push_back({param, 0, model.params[param]->numel});
  }

  // An owner for each parameter that must stay whole, balanced over the model: the largest first, each to the rank that
  // has the least so far (the lower one of equals). -1 for the others.
  [[nodiscard]] std::vector<int32_t> deal_whole_params(int32_t world_size) const {
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

  // By owner, then in the model's order, each from the grid on.
  void place_params(FlatSpace& space, const std::vector<int32_t>& owners) {
    const auto owner = [&](const PlacedParam& p) { return owners[static_cast<size_t>(p.param)]; };
    std::stable_sort(space.params.begin(), space.params.end(),
                     [&](const PlacedParam& a, const PlacedParam& b) { return owner(a) < owner(b); });
    for (PlacedParam& p : space.params) {
      p.offset = space.numel;
      place[static_cast<size_t>(p.param)].offset = p.offset;
      space.numel += round_up_to_grid(p.numel);
    }
  }
  static Cut cut_at_owners(const FlatSpace& space, const std::vector<int32_t>& owners, int32_t world_size) {
    std::vector<uint64_t> numel(static_cast<size_t>(world_size), 0);
    for (const PlacedParam& p : space.params) {
      numel[static_cast<size_t>(owners[static_cast<size_t>(p.param)])] += round_up_to_grid(p.numel);
    }
    return Cut(std::move(numel));
  }
};

// Builds the views that acquire hands out, and keeps account of which gradients have been written.
class UnitViews {
 public:
  UnitViews() = default;
  UnitViews(const ddh_model_desc& model, const ModelLayout& layout)
      : model_(&model), layout_(&layout), views_(model.n_units), written_(model.n_params, false) {
    for (uint32_t u = 0; u < model.n_units; ++u) views_[u].resize(model.units[u]->n_params);
  }

  // `data(space)` gives the base of a flat space's values, `grad(space)` of its fp32 gradients (called in backward for
  // trained parameters alone).
  template <class Data, class Grad>
  void fill(const ddh_unit_use& use, uint64_t version, Data&& data, Grad&& grad, ddh_unit_view& out) {
    const ddh_unit_desc& unit = *model_->units[use.unit];
    for (uint32_t i = 0; i < unit.n_params; ++i) {
      const auto p = static_cast<size_t>(unit.params[i]);
      const ModelLayout::Place at = layout_->place[p];
      const int32_t dtype = layout_->spaces[at.space].dtype;
      auto* const values = static_cast<char*>(static_cast<void*>(data(at.space))) + at.offset * ddh_dtype_bytes(dtype);
      ddh_param_view& view = views_[static_cast<size_t>(use.unit)][i];
      view = {unit.params[i], dtype, values, nullptr, 0, 0, model_->params[p]->numel, nullptr, nullptr};
      if (use.phase != DDH_PHASE_BACKWARD || !layout_->spaces[at.space].trained_in(use.program)) continue;
      view.grad = grad(at.space) + at.offset;
      view.grad_dtype = DDH_F32;
      view.grad_mode = written_[p] ? DDH_GRAD_ADD : DDH_GRAD_WRITE;
      written_[p] = true;
    }
    out.n_params = unit.n_params;
    out.params = views_[static_cast<size_t>(use.unit)].data();
    out.param_stride = sizeof(ddh_param_view);
    out.version = version;
  }

  // The next write of these gradients begins afresh.
  void forget_gradients(const FlatSpace& space) {
    for (const PlacedParam& p : space.params) written_[static_cast<size_t>(p.param)] = false;
  }

 private:
  const ddh_model_desc* model_ = nullptr;
  const ModelLayout* layout_ = nullptr;
  std::vector<std::vector<ddh_param_view>> views_;  // per unit
  std::vector<bool> written_;                       // per parameter
};

// One of how many ranks that hold the same state.
struct Replica {
  int32_t index = 0, count = 1;
};

// State entries of one flat range: values or per-element slots of the parameters that lie in it, in DDH_MEM_*.
inline void append_state(std::vector<ddh_state_entry>& out, const std::vector<ddh_range>& ranges, int32_t kind,
                         int32_t slot, int32_t dtype, void* base, Replica replica, int32_t memory = DDH_MEM_DEVICE) {
  for (const ddh_range& r : ranges) {
    out.push_back({sizeof(ddh_state_entry), r.param, kind, slot, dtype, memory, r.param_offset, r.numel,
                   static_cast<char*>(base) + r.flat_offset * ddh_dtype_bytes(dtype), replica.index, replica.count});
  }
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
