// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/layout.hpp: shard arithmetic. How parameters lie in flat spaces, how a flat space is cut into one segment per
// rank, and how the views that units get point into them. No memory, no communication: numbers only.
#pragma once

#include <algorithm>
#include <vector>

#include "ddh/sdk/run_program.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// Parameters start, and shards are cut, on this grid (elements): a cache line of floats times four, and the block of
// the exact norm.
inline constexpr uint64_t kGrid = DDH_GRID;

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

// The flat space of one layout group: the parameters of one unit that the same programs train (or none), that views show in
// the same dtype, and that the optimizer needs whole, or not. A bucket is the flat space of several units.
struct FlatSpace {
  int32_t unit = 0;         // of a bucket: the one whose backward is the last
  uint64_t trained_by = 0;  // bit g: program g, if the run has it, trains these
  bool whole = false;       // segments end where parameters end
  bool persistent = false;  // small parameters whose full view is always there
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

// What lies in one flat space beyond a unit's own. Bytes are counted in fp32 (gradients), whatever the precision, so that
// a setting means the same spaces in each.
struct Grouping {
  uint64_t bucket_bytes = 0;      // units are joined, in the order of their backward, until they have so much; 0: none
  uint64_t persistent_bytes = 0;  // parameters of at most so much lie apart, those of all units together; 0: none
};

// The layout of a whole model: which flat spaces there are, where each parameter lies, what each unit uses.
class ModelLayout {
 public:
  ModelLayout() = default;
  // For the model and the programs of a run, cut among args.world_size ranks. `whole`: per parameter, whether it must stay
  // on one rank; empty: any may be cut.
  explicit ModelLayout(const ddh_attach_args& args, const std::vector<bool>& whole = {}, const Grouping& grouping = {})
      : programs(run_programs(args)), place(args.model->n_params), unit_uses(args.model->n_units) {
    const ddh_model_desc& model = *args.model;
    for (uint32_t p = 0; p < model.n_params; ++p) {
      const bool persistent = model.params[p]->numel * sizeof(float) <= grouping.persistent_bytes;
      join_space(args, static_cast<int32_t>(p), !whole.empty() && whole[p], persistent);
    }
    find_shared(model);
    fill_buckets(grouping);
    const std::vector<int32_t> owners = deal_whole_params(args.world_size);
    for (FlatSpace& space : spaces) {
      place_params(space, owners);
      space.cut = space.whole ? cut_at_owners(space, owners, args.world_size) : Cut(space.numel, args.world_size);
    }
    for (uint32_t u = 0; u < model.n_units; ++u) {
      for (uint32_t i = 0; i < model.units[u]->n_params; ++i) {
        const size_t space = place[static_cast<size_t>(model.units[u]->params[i])].space;
        std::vector<size_t>& uses = unit_uses[u];
        if (std::find(uses.begin(), uses.end(), space) == uses.end()) uses.push_back(space);
      }
    }
  }

  struct Place {
    size_t space = 0;
    uint64_t offset = 0;
  };
  std::vector<RunProgram> programs;
  std::vector<FlatSpace> spaces;
  std::vector<Place> place;                    // per parameter
  std::vector<std::vector<size_t>> unit_uses;  // per unit: the spaces it reads

  // What ddh_plan counts calls of.
  [[nodiscard]] int32_t first_program() const { return programs.empty() ? 0 : programs.front().program; }

  // The spaces whose gradients are complete with those of this unit's own parameters: what grads_ready is about.
  [[nodiscard]] std::vector<size_t> trained_spaces(int32_t unit, int32_t program) const {
    std::vector<size_t> out;
    for (size_t s = 0; s < spaces.size(); ++s) {
      if (spaces[s].unit == unit && spaces[s].trained_in(program)) out.push_back(s);
    }
    return out;
  }

 private:
  [[nodiscard]] uint64_t trained_by(int32_t param) const {
    uint64_t bits = 0;
    for (const RunProgram& program : programs) {
      if (program.trains(param)) bits |= uint64_t{1} << program.program;
    }
    return bits;
  }

  void join_space(const ddh_attach_args& args, int32_t param, bool needed_whole, bool persistent) {
    const ddh_model_desc& model = *args.model;
    const int32_t unit = model.params[param]->owner_unit, own_dtype = model.params[param]->compute_dtype;
    const int32_t dtype = own_dtype != 0 ? own_dtype : args.compute_dtype;
    const uint64_t trainers = trained_by(param);
    const bool whole = needed_whole && trainers != 0;  // nobody updates what is not trained
    const auto same = [&](const FlatSpace& s) {
      return s.unit == unit && s.trained_by == trainers && s.whole == whole && s.persistent == persistent &&
             s.dtype == dtype;
    };
    auto space = std::find_if(spaces.begin(), spaces.end(), same);
    if (space == spaces.end()) {
      FlatSpace fresh;
      fresh.unit = unit;
      fresh.trained_by = trainers;
      fresh.dtype = dtype;
      fresh.whole = whole;
      fresh.persistent = persistent;
      fresh.name = str(model.units[unit]->name, persistent ? " (small)" : "",
                       trainers == 0 ? " (frozen)"
                       : whole       ? " (whole)"
                                     : "",
                       dtype != args.compute_dtype ? " (fp32)" : "");
      space = spaces.insert(spaces.end(), std::move(fresh));
    }
    place[static_cast<size_t>(param)].space = static_cast<size_t>(space - spaces.begin());
    space->params.push_back({param, 0, model.params[param]->numel});
  }

  void find_shared(const ddh_model_desc& model) {
    for (uint32_t u = 0; u < model.n_units; ++u) {
      const bool twice = std::any_of(programs.begin(), programs.end(), [u](const RunProgram& program) {
        return program.has_twice(static_cast<int32_t>(u));
      });
      for (uint32_t i = 0; i < model.units[u]->n_params; ++i) {
        FlatSpace& space = spaces[place[static_cast<size_t>(model.units[u]->params[i])].space];
        if (twice || space.unit != static_cast<int32_t>(u)) space.shared = true;
      }
    }
  }

  // Whether every program that trains two spaces alike runs `later`'s backward after `earlier`'s, or neither.
  [[nodiscard]] bool in_backward_order(const FlatSpace& earlier, const FlatSpace& later) const {
    for (const RunProgram& program : programs) {
      if (!earlier.trained_in(program.program)) continue;
      const std::ptrdiff_t a = program.ready_at(earlier.unit), b = program.ready_at(later.unit);
      if ((a < 0) != (b < 0) || (a >= 0 && a >= b)) return false;
    }
    return true;
  }

  // Joins spaces to buckets: trained by the same programs, of the same kind, used once in a pass.
  void fill_buckets(const Grouping& grouping) {
    struct Open {
      size_t space;
      std::string first_name;
    };
    std::vector<Open> open;  // buckets that take more
    std::vector<bool> seen(spaces.size(), false);
    for (const RunProgram& program : programs) {
      for (const ddh_op& op : program.ops) {
        if ((op.flags & DDH_OP_GRADS_READY) == 0) continue;
        for (const size_t s : trained_spaces(op.unit, program.program)) {
          FlatSpace& space = spaces[s];
          if (space.shared || seen[s]) continue;
          seen[s] = true;
          auto bucket = std::find_if(open.begin(), open.end(), [&](const Open& o) {
            const FlatSpace& b = spaces[o.space];
            return b.trained_by == space.trained_by && b.whole == space.whole && b.persistent == space.persistent &&
                   b.dtype == space.dtype && in_backward_order(b, space);
          });
          if (bucket == open.end()) {
            bucket = open.insert(open.end(), {s, space.name});
          } else {
            join_bucket(bucket->space, s, str(bucket->first_name, " to ", space.name));
          }
          const FlatSpace& filled = spaces[bucket->space];
          if (!filled.persistent && padded_bytes(filled) >= grouping.bucket_bytes) open.erase(bucket);
        }
      }
    }
    drop_empty_spaces();
  }
  void join_bucket(size_t bucket, size_t space, std::string name) {
    FlatSpace &to = spaces[bucket], &from = spaces[space];
    to.params.insert(to.params.end(), from.params.begin(), from.params.end());
    to.unit = from.unit;
    to.name = std::move(name);
    for (const PlacedParam& p : from.params) place[static_cast<size_t>(p.param)].space = bucket;
    from.params.clear();
  }
  void drop_empty_spaces() {
    std::vector<size_t> left;
    for (size_t s = 0; s < spaces.size(); ++s) {
      if (spaces[s].params.empty()) continue;
      for (const PlacedParam& p : spaces[s].params) place[static_cast<size_t>(p.param)].space = left.size();
      left.push_back(s);
    }
    for (size_t s = 0; s < left.size(); ++s) {
      if (left[s] != s) spaces[s] = std::move(spaces[left[s]]);
    }
    spaces.resize(left.size());
  }
  // Of a space whose parameters are not placed yet.
  static uint64_t padded_bytes(const FlatSpace& space) {
    uint64_t numel = 0;
    for (const PlacedParam& p : space.params) numel += round_up_to_grid(p.numel);
    return numel * sizeof(float);
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
      view = {unit.params[i], dtype, values, nullptr, 0, 0, model_->params[p]->numel};
      if (!gives_gradients(use.phase, use.flags) || !layout_->spaces[at.space].trained_in(use.program)) continue;
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

// How often the gradients of a space are summed over the ranks in a step.
inline uint32_t reductions_per_step(const ddh_attach_args& args) {
  return args.reduce_order == DDH_RANK_FIRST ? args.grad_accum_steps : 1;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
