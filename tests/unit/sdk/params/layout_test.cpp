// SPDX-License-Identifier: Apache-2.0
//
// Shard arithmetic of the SDK: flat spaces, cuts, ranges, views.
#include "ddh/sdk/params/unit_views.hpp"
#include "fixtures/harness/attach_args.hpp"

#include <catch2/catch.hpp>

namespace {

using ddhost::test::AttachArgs;

// Two units; the second borrows the first one's first parameter. Sizes are uneven on purpose.
struct Model {
  int64_t shapes[5] = {7 * 5, 1, 130, 64, 3};
  ddh_param_desc params[5]{};
  const ddh_param_desc* param_list[5]{};
  int32_t first_uses[4] = {0, 1, 2, 4}, second_uses[2] = {3, 0};
  ddh_unit_desc units[2] = {{sizeof(ddh_unit_desc), 4, "first", first_uses},
                            {sizeof(ddh_unit_desc), 2, "second", second_uses}};
  const ddh_unit_desc* unit_list[2] = {&units[0], &units[1]};
  int32_t order[2] = {0, 1};
  ddh_program_desc program{};
  const ddh_program_desc* programs[1] = {&program};
  ddh_model_desc desc{};

  Model() {
    const char* names[5] = {"tied", "scalar", "vector", "second.weight", "frozen"};
    for (int32_t p = 0; p < 5; ++p) {
      params[p].struct_size = sizeof params[p];
      params[p].name = names[p];
      params[p].shape = &shapes[p];
      params[p].n_dims = 1;
      params[p].numel = static_cast<uint64_t>(shapes[p]);
      params[p].owner_unit = p == 3 ? 1 : 0;
      param_list[p] = &params[p];
    }
    params[4].attributes = DDH_PARAM_FROZEN;
    program.struct_size = sizeof program;
    program.kind = DDH_PROGRAM_TRAIN;
    program.units = order;
    program.n_units = 2;
    desc = {sizeof desc, 5, param_list, unit_list, nullptr, programs, 2, 0, 1, 0, "test", nullptr, nullptr, 0, 0};
  }
};

}  // namespace

TEST_CASE("segments cover a flat space in rank order and differ by at most one grid block") {
  const auto world = GENERATE(1, 2, 3, 4, 8);
  const auto numel = GENERATE(uint64_t{0}, uint64_t{64}, uint64_t{640}, uint64_t{64 * 17});
  const ddh::Cut cut(numel, world);
  uint64_t at = 0;
  for (size_t r = 0; r < static_cast<size_t>(world); ++r) {
    CHECK(cut.segment_offset[r] == at);
    CHECK(cut.segment_numel[r] % ddh::kGrid == 0);
    CHECK(cut.segment_numel[0] - cut.segment_numel[r] <= ddh::kGrid);
    at += cut.segment_numel[r];
  }
  CHECK(at == numel);
}

TEST_CASE("parameters start on the grid, and untrained ones are separate") {
  const Model model;
  const ddh::ModelLayout layout(AttachArgs(model.desc, 2).get());
  REQUIRE(layout.spaces.size() == 3);
  const ddh::FlatSpace& first = layout.spaces[0];
  CHECK(first.trained_in(0));
  CHECK(first.shared);
  CHECK(first.numel == 64 + 64 + 192);
  CHECK(layout.place[2].offset == 128);
  const ddh::FlatSpace& frozen = layout.spaces[layout.place[4].space];
  CHECK_FALSE(frozen.trained());
  CHECK(frozen.numel == 64);
  CHECK(layout.unit_uses[1].size() == 2);
  CHECK(layout.trained_spaces(0, 0) == std::vector<size_t>{0});
}

TEST_CASE("ranges of all segments list every element of every parameter once") {
  const auto world = GENERATE(1, 2, 3, 5, 8);
  const Model model;
  const ddh::ModelLayout layout(AttachArgs(model.desc, world).get());
  for (const ddh::FlatSpace& space : layout.spaces) {
    std::vector<std::vector<int>> seen;
    for (const ddh_param_desc& p : model.params) seen.emplace_back(p.numel, 0);
    for (int32_t r = 0; r < world; ++r) {
      for (const ddh_range& range : space.segment_ranges(r)) {
        CHECK(range.param_offset % ddh::kGrid == 0);
        CHECK(range.flat_offset + range.numel <= space.cut.segment_numel[static_cast<size_t>(r)]);
        for (uint64_t i = 0; i < range.numel; ++i) ++seen[static_cast<size_t>(range.param)][range.param_offset + i];
      }
    }
    for (const ddh::PlacedParam& p : space.params) {
      for (const int count : seen[static_cast<size_t>(p.param)]) REQUIRE(count == 1);
    }
  }
}

TEST_CASE("parameters that must stay whole have a space of their own, cut at their borders") {
  const auto world = GENERATE(1, 2, 3, 5, 8);
  const Model model;
  const ddh::ModelLayout layout(AttachArgs(model.desc, world).get(), {true, false, true, true, true});
  REQUIRE(layout.spaces.size() ==
          4);  // first, first whole, second whole, frozen: nobody updates that, so it may be cut
  for (const ddh::FlatSpace& space : layout.spaces) {
    uint64_t at = 0;
    std::vector<size_t> pieces(5, 0);
    for (int32_t r = 0; r < world; ++r) {
      CHECK(space.cut.segment_offset[static_cast<size_t>(r)] == at);
      at += space.segment_numel(r);
      for (const ddh_range& range : space.segment_ranges(r)) {
        ++pieces[static_cast<size_t>(range.param)];
        if (space.whole) CHECK(range.numel == model.params[range.param].numel);
      }
    }
    CHECK(at == space.numel);
    for (const ddh::PlacedParam& p : space.params) {
      CHECK(layout.place[static_cast<size_t>(p.param)].offset == p.offset);
      CHECK(p.offset % ddh::kGrid == 0);
      if (space.whole) CHECK(pieces[static_cast<size_t>(p.param)] == 1);
    }
  }
  CHECK(layout.spaces[layout.place[0].space].whole);
  CHECK_FALSE(layout.spaces[layout.place[1].space].whole);
  CHECK(layout.place[2].space == layout.place[0].space);
  CHECK(layout.place[3].space != layout.place[0].space);
  CHECK_FALSE(layout.spaces[layout.place[4].space].whole);
  CHECK(layout.unit_uses[1].size() == 2);
}

TEST_CASE("whole parameters are assigned to ranks over the whole model, the largest first") {
  const Model model;  // padded: 64, 64, 192, and in the second unit 64
  const ddh::ModelLayout two(AttachArgs(model.desc, 2).get(), {true, true, true, true, false});
  const ddh::FlatSpace& first = two.spaces[two.place[0].space];
  CHECK(first.segment_numel(0) == 192);  // parameter 2 alone; all others to the rank that has less
  CHECK(first.segment_numel(1) == 128);
  CHECK(two.place[2].offset == 0);
  CHECK(two.place[0].offset == 192);
  CHECK(two.place[1].offset == 256);
  const ddh::FlatSpace& second = two.spaces[two.place[3].space];
  CHECK(second.segment_numel(0) == 0);
  CHECK(second.segment_numel(1) == 64);
}

TEST_CASE("the second use of a tied parameter adds to the first one's gradient, and frozen parameters have none") {
  const Model model;
  const ddh::ModelLayout layout(AttachArgs(model.desc, 1).get());
  ddh::UnitViews views(model.desc, layout);
  float data[1024] = {}, grad[1024] = {};
  const auto fill = [&](int32_t unit) {
    ddh_unit_use use{};
    use.struct_size = sizeof use;
    use.unit = unit;
    use.phase = DDH_PHASE_BACKWARD;
    ddh_unit_view view{};
    views.fill(
        use, 1, [&](size_t) { return data; }, [&](size_t) { return grad; }, view);
    return view;
  };
  const ddh_unit_view second = fill(1);
  CHECK(ddh_view_param(&second, 1)->grad_mode == DDH_GRAD_WRITE);
  const ddh_unit_view first = fill(0);
  CHECK(ddh_view_param(&first, 0)->grad_mode == DDH_GRAD_ADD);
  CHECK(ddh_view_param(&first, 1)->grad_mode == DDH_GRAD_WRITE);
  CHECK(ddh_view_param(&first, 3)->grad == nullptr);
  views.forget_gradients(layout.spaces[0]);
  const ddh_unit_view again = fill(0);
  CHECK(ddh_view_param(&again, 0)->grad_mode == DDH_GRAD_WRITE);
}
