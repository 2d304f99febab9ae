// SPDX-License-Identifier: Apache-2.0
//
// Flat spaces of several units: the units of a bucket, the places of their parameters, and when it is complete.
#include <catch2/catch.hpp>
#include <set>

#include "ddh/sdk/model.hpp"
#include "ddh/sdk/params/layout.hpp"
#include "fixtures/harness/attach_args.hpp"

namespace {

using Trainable = std::vector<uint8_t>;

// Four units with a matrix of 100 elements and a vector of 10 each: 128 + 64 padded, 768 bytes of gradients. A program for
// each order of units.
struct Model {
  ddh::ModelDesc desc{"test"};
  explicit Model(const std::vector<std::vector<int32_t>>& orders, const std::vector<Trainable>& trainable = {},
                 bool tied = false, uint32_t vector_attributes = 0) {
    for (int32_t u = 0; u < 4; ++u) {
      const std::string name = ddh::str("unit ", u);
      std::vector<int32_t> params = {desc.add_param(u, name + ".matrix", {100}, {}),
                                     desc.add_param(u, name + ".vector", {10}, {}, vector_attributes)};
      if (tied && u == 3) params.push_back(0);
      desc.add_unit(name, params);
    }
    for (size_t g = 0; g < orders.size(); ++g) {
      desc.add_program({DDH_PROGRAM_TRAIN,
                        ddh::str("train ", g),
                        orders[g],
                        {"loss"},
                        1,
                        "samples",
                        g < trainable.size() ? trainable[g] : Trainable{}});
    }
  }
  ddh::ModelLayout layout(uint64_t bucket_bytes, uint64_t persistent_bytes = 0, const std::vector<bool>& whole = {}) {
    ddh::Grouping grouping;
    grouping.bucket_bytes = bucket_bytes;
    grouping.persistent_bytes = persistent_bytes;
    return ddh::ModelLayout(ddhost::test::AttachArgs(desc.get(), 3).get(), whole, grouping);
  }
};

std::multiset<std::string> names(const ddh::ModelLayout& layout) {
  std::multiset<std::string> out;
  for (const ddh::FlatSpace& space : layout.spaces) out.insert(space.name);
  return out;
}

using Names = std::multiset<std::string>;
const std::vector<int32_t> kForward = {0, 1, 2, 3};

}  // namespace

TEST_CASE("a bucket is closed when it has reached its bytes") {
  Model model({kForward});
  CHECK(names(model.layout(0)) == Names{"unit 0", "unit 1", "unit 2", "unit 3"});
  CHECK(names(model.layout(768)) == Names{"unit 0", "unit 1", "unit 2", "unit 3"});
  CHECK(names(model.layout(769)) == Names{"unit 3 to unit 2", "unit 1 to unit 0"});
  CHECK(names(model.layout(3 * 768)) == Names{"unit 3 to unit 1", "unit 0"});
  CHECK(names(model.layout(1 << 20)) == Names{"unit 3 to unit 0"});
}

TEST_CASE("a bucket is complete after the last backward of its units, and every unit uses its own part") {
  Model model({kForward});
  const ddh::ModelLayout layout = model.layout(769);
  CHECK(layout.trained_spaces(3, 0).empty());
  CHECK(layout.trained_spaces(1, 0).empty());
  REQUIRE(layout.trained_spaces(2, 0).size() == 1);
  REQUIRE(layout.trained_spaces(0, 0).size() == 1);
  for (const size_t u : {0U, 1U, 2U, 3U}) CHECK(layout.unit_uses[u] == layout.trained_spaces(u < 2 ? 0 : 2, 0));
}

TEST_CASE("the segments of a bucket list every element of every parameter once") {
  Model model({kForward});
  const std::vector<bool> whole =
      GENERATE(std::vector<bool>{}, std::vector<bool>{true, false, true, false, true, false, true, false});
  const ddh::ModelLayout layout = model.layout(1 << 20, 0, whole);
  std::vector<std::vector<int>> seen;
  for (int p = 0; p < 8; ++p) seen.emplace_back(p % 2 == 0 ? 100 : 10, 0);
  for (const ddh::FlatSpace& space : layout.spaces) {
    CHECK(space.numel == (whole.empty() ? 4 * 192 : space.whole ? 4 * 128 : 4 * 64));
    for (int32_t r = 0; r < 3; ++r) {
      for (const ddh_range& range : space.segment_ranges(r)) {
        if (space.whole) CHECK(range.numel == 100);
        for (uint64_t i = 0; i < range.numel; ++i) ++seen[static_cast<size_t>(range.param)][range.param_offset + i];
      }
    }
    for (const ddh::PlacedParam& p : space.params) {
      const ddh::ModelLayout::Place at = layout.place[static_cast<size_t>(p.param)];
      CHECK(&layout.spaces[at.space] == &space);
      CHECK(at.offset == p.offset);
    }
  }
  for (const std::vector<int>& counts : seen) {
    for (const int count : counts) REQUIRE(count == 1);
  }
}

TEST_CASE("tied parameters and units that occur twice have buckets of their own") {
  Model tied({kForward}, {}, /*tied=*/true);
  CHECK(names(tied.layout(1 << 20)) == Names{"unit 0", "unit 3 to unit 1"});
  Model twice({{0, 1, 2, 1, 3}});
  CHECK(names(twice.layout(1 << 20)) == Names{"unit 1", "unit 3 to unit 0"});
}

TEST_CASE("untrained parameters are in no bucket") {
  Model model({kForward}, {}, false, DDH_PARAM_FROZEN);
  CHECK(names(model.layout(1 << 20)) ==
        Names{"unit 0 (frozen)", "unit 1 (frozen)", "unit 2 (frozen)", "unit 3 (frozen)", "unit 3 to unit 0"});
}

TEST_CASE("a bucket joins units that the same programs train in the same order") {
  SECTION("one program trains the first two units, another the last two") {
    Model model({kForward, kForward}, {{1, 1, 1, 1, 0, 0, 0, 0}, {0, 0, 0, 0, 1, 1, 1, 1}});
    CHECK(names(model.layout(1 << 20)) == Names{"unit 1 to unit 0", "unit 3 to unit 2"});
  }
  SECTION("two programs run the last two units in different orders") {
    Model model({kForward, {0, 1, 3, 2}});
    // Unit 2 comes after unit 3 in one backward and before it in the other.
    CHECK(names(model.layout(1 << 20)) == Names{"unit 2", "unit 3 to unit 0"});
  }
  SECTION("one program leaves a unit out") {
    Model model({kForward, {0, 1, 3}});
    CHECK(names(model.layout(1 << 20)) == Names{"unit 2", "unit 3 to unit 0"});
  }
}

TEST_CASE("small parameters of all units share a space that stays gathered") {
  Model model({kForward});
  CHECK(names(model.layout(0, 39)) == Names{"unit 0", "unit 1", "unit 2", "unit 3"});
  const ddh::ModelLayout layout = model.layout(0, 40);
  CHECK(names(layout) == Names{"unit 0", "unit 1", "unit 2", "unit 3", "unit 3 (small) to unit 0 (small)"});
  for (const ddh::FlatSpace& space : layout.spaces) {
    CHECK(space.persistent == (space.numel == 4 * 64));
    CHECK_FALSE(space.shared);
  }
  for (const std::vector<size_t>& uses : layout.unit_uses) CHECK(uses.size() == 2);
}
