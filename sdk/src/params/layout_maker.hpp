// SPDX-License-Identifier: Apache-2.0
//
// The steps that make a ModelLayout: assign parameters to spaces, join spaces to buckets, place parameters.
#pragma once

#include "ddh/sdk/params/layout.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

struct LayoutMaker {
  explicit LayoutMaker(ModelLayout& made)
      : layout(made), programs(made.programs), spaces(made.spaces), place(made.place) {}

  [[nodiscard]] uint64_t trained_by(int32_t param) const;

  // What the layout's maker knows of a parameter.
  struct Kind {
    bool needed_whole = false, persistent = false, coded = false, in_blocks = false;
    int32_t slot_use = 0;
  };
  void join_space(const ddh_attach_args& args, int32_t param, Kind kind);

  // Bytes of the gradients of each unit's own parameters that are summed element by element.
  [[nodiscard]] std::vector<uint64_t> grad_bytes_of_units(const ddh_model_desc& model,
                                                          const std::vector<bool>& coded) const;

  void find_shared(const ddh_model_desc& model);

  // Whether every program that trains two spaces alike runs `later`'s backward after `earlier`'s, or neither.
  [[nodiscard]] bool in_backward_order(const FlatSpace& earlier, const FlatSpace& later) const;

  // Joins spaces to buckets: trained by the same programs, of the same kind, used once in a pass.
  void fill_buckets(const Grouping& grouping);
  void join_bucket(size_t bucket, size_t space, std::string name);
  void drop_empty_spaces();
  // The size of a space whose parameters are not placed yet.
  static uint64_t padded_bytes(const FlatSpace& space);

  // The owner of each parameter that must stay whole, balanced over the model: largest first, each to the rank with the
  // fewest elements so far; ties go to the lower rank. -1 for the others.
  [[nodiscard]] std::vector<int32_t> deal_whole_params(int32_t world_size) const;

  // Places parameters by owner, then those in blocks first, then in the model's order, each on the grid.
  void place_params(FlatSpace& space, const std::vector<int32_t>& owners);
  static Cut cut_at_owners(const FlatSpace& space, const std::vector<int32_t>& owners, int32_t world_size);

  ModelLayout& layout;
  std::vector<RunProgram>& programs;
  std::vector<FlatSpace>& spaces;
  std::vector<ModelLayout::Place>& place;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
