// SPDX-License-Identifier: Apache-2.0
//
// Which spaces are used more than once, and which ones are joined to buckets.
#include <algorithm>

#include "layout_maker.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

void LayoutMaker::find_shared(const ddh_model_desc& model) {
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

bool LayoutMaker::in_backward_order(const FlatSpace& earlier, const FlatSpace& later) const {
  for (const RunProgram& program : programs) {
    if (!earlier.trained_in(program.program)) continue;
    const std::ptrdiff_t a = program.ready_at(earlier.unit), b = program.ready_at(later.unit);
    if ((a < 0) != (b < 0) || (a >= 0 && a >= b)) return false;
  }
  return true;
}

namespace {
bool has_blocks(const FlatSpace& space) {
  return std::any_of(space.params.begin(), space.params.end(), [](const PlacedParam& p) { return p.in_blocks; });
}
}  // namespace

void LayoutMaker::fill_buckets(const Grouping& grouping) {
  struct Open {
    size_t space;
    std::string first_name;
  };
  std::vector<Open> open;  // buckets that take more
  std::vector<bool> seen(spaces.size(), false);
  for (const RunProgram& program : programs) {
    for (const ddh_op& op : program.ops) {
      if ((op.flags & DDH_OP_GRADS_READY) == 0) continue;
      for (const size_t s : layout.trained_spaces(op.unit, program.program)) {
        FlatSpace& space = spaces[s];
        if (space.shared || space.coded || has_blocks(space) || seen[s]) continue;
        seen[s] = true;
        auto bucket = std::find_if(open.begin(), open.end(), [&](const Open& o) {
          const FlatSpace& b = spaces[o.space];
          return b.trained_by == space.trained_by && b.whole == space.whole && b.persistent == space.persistent &&
                 b.dtype == space.dtype && b.slot_use == space.slot_use && in_backward_order(b, space);
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

void LayoutMaker::join_bucket(size_t bucket, size_t space, std::string name) {
  FlatSpace &to = spaces[bucket], &from = spaces[space];
  to.params.insert(to.params.end(), from.params.begin(), from.params.end());
  to.unit = from.unit;
  to.name = std::move(name);
  for (const PlacedParam& p : from.params) place[static_cast<size_t>(p.param)].space = bucket;
  from.params.clear();
}

void LayoutMaker::drop_empty_spaces() {
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

uint64_t LayoutMaker::padded_bytes(const FlatSpace& space) {
  uint64_t numel = 0;
  for (const PlacedParam& p : space.params) numel += round_up_to_grid(p.numel);
  return numel * sizeof(float);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
