// SPDX-License-Identifier: Apache-2.0
//
// What a strategy counts and updates: any cut of a parameter, on any ranks, is right where each element comes once, and
// nothing else is.
#include <catch2/catch.hpp>
#include <string>

#include "engine/services/optim/step_account.hpp"
#include "engine/services/tables/tables.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;
using ddhost::test::sentence_of;

namespace {

struct Model {
  ddh_param_desc params[3]{};
  const ddh_param_desc* pointers[3] = {&params[0], &params[1], &params[2]};
  ddh_unit_desc unit{};
  const ddh_unit_desc* units[1] = {&unit};
  ddh_program_desc programs[2]{};
  const ddh_program_desc* program_pointers[2] = {&programs[0], &programs[1]};
  const uint8_t first_only[3] = {1, 0, 0}, both[3] = {1, 1, 0};
  ddh_model_desc desc{};
  Model() {
    const char* names[] = {"a", "b", "c"};
    const uint64_t numels[] = {1000, 130, 1};
    for (size_t p = 0; p < 3; ++p) {
      params[p].name = names[p];
      params[p].numel = numels[p];
    }
    params[2].attributes = DDH_PARAM_FROZEN;
    unit.name = "all";
    programs[0].name = "both";
    programs[1].name = "first";
    programs[1].trainable = first_only;
    desc.n_params = 3;
    desc.params = pointers;
    desc.n_units = 1;
    desc.units = units;
    desc.n_programs = 2;
    desc.programs = program_pointers;
  }
};

// Counts one range at the beginning of a flat buffer.
void count(StepAccount& account, int32_t param, uint64_t begin, uint64_t numel) {
  const ddh_range range{param, 0, begin, 0, numel};
  account.add_gradient(0, numel, {&range, 1});
}

Cover::Param sum(const StepAccount& a, const StepAccount& b, int32_t param) {
  Cover::Param out = a.gradient_cover().of(param);
  return out += b.gradient_cover().of(param);
}

}  // namespace

TEST_CASE("pieces on any ranks add up to the whole, whatever the cut and the order", "[account]") {
  const Model model;
  StepAccount rank_0(model.desc), rank_1(model.desc);
  rank_0.begin(0, model.both);
  rank_1.begin(0, model.both);
  count(rank_0, 0, 640, 360);
  count(rank_1, 0, 0, 64);
  count(rank_0, 1, 0, 128);
  count(rank_0, 0, 64, 576);
  CHECK(rank_0.gradients() + rank_1.gradients() != rank_0.expected_gradients());
  count(rank_1, 1, 128, 2);
  CHECK(rank_0.gradients() + rank_1.gradients() == rank_0.expected_gradients());
  CHECK(sum(rank_0, rank_1, 0) == Cover::piece(0, 0, 1000));
}

TEST_CASE("a chunk of a flat buffer counts the parts of ranges inside it", "[account]") {
  const Model model;
  StepAccount account(model.desc);
  account.begin(0, model.both);
  const ddh_range ranges[] = {{0, 0, 0, 0, 1000}, {1, 0, 0, 1024, 130}};
  for (uint64_t begin = 0; begin < 1200; begin += 256) account.add_gradient(begin, 256, ranges);
  CHECK(account.gradients() == account.expected_gradients());
}

TEST_CASE("elements counted twice, never, or twice instead of another give three different errors", "[account]") {
  const Model model;
  const auto refused = [&](auto&& act) {
    StepAccount account(model.desc);
    account.begin(0, model.both);
    act(account);
    CHECK(account.gradients() != account.expected_gradients());
    return sentence_of([&] { account.fail_gradients(account.gradient_cover().params()); });
  };
  const auto whole = [](StepAccount& account) {
    count(account, 0, 0, 1000);
    count(account, 1, 0, 130);
  };
  CHECK_THAT(refused([&](StepAccount& a) { whole(a), count(a, 1, 64, 66); }),
             Catch::Contains("196 elements") && Catch::Contains("'b' (unit 'all')"));
  CHECK_THAT(refused([](StepAccount& a) { count(a, 1, 0, 130); }),
             Catch::Contains("'a'") && Catch::Contains("not counted in the norm"));
  CHECK_THAT(refused([](StepAccount& a) {
               count(a, 0, 0, 1000);
               count(a, 1, 0, 64);
               count(a, 1, 0, 64);
               count(a, 1, 128, 2);
             }),
             Catch::Contains("'b'") && Catch::Contains("counted twice in the norm, and others never"));
}

TEST_CASE("parameters that the step's program does not train are neither counted nor updated", "[account]") {
  const Model model;
  StepAccount account(model.desc);
  account.begin(1, model.first_only);
  count(account, 0, 0, 1000);
  CHECK(account.gradients() == account.expected_gradients());
  CHECK_THAT(sentence_of([&] { count(account, 1, 0, 64); }), Catch::Contains("'b'") && Catch::Contains("'first'"));
  const ddh_range frozen{2, 0, 0, 0, 1};
  CHECK_THAT(sentence_of([&] { account.add_update({&frozen, 1}); }), Catch::Contains("'c'"));
  account.begin(0, model.both);
  CHECK(account.gradients() == 0);
}

TEST_CASE("a rank updates what it holds, all of it, once", "[account]") {
  const Model model;
  Cover held(3);
  held.add(0, 0, 512);
  held.add(1, 0, 130);
  StepAccount account(model.desc);
  account.begin(0, model.both);
  const ddh_range first{0, 0, 0, 0, 512}, other{0, 0, 448, 0, 512}, second{1, 0, 0, 0, 130};
  account.add_update({&first, 1});
  CHECK_THAT(sentence_of([&] { account.check_updates(held); }),
             Catch::Contains("0 of the 130") && Catch::Contains("'b'"));
  account.add_update({&second, 1});
  CHECK(sentence_of([&] { account.check_updates(held); }).empty());
  CHECK_THAT(sentence_of([&] { account.add_update({&second, 1}); }), Catch::Contains("a second time"));
  account.begin(0, model.both);
  account.add_update({&other, 1});
  CHECK_THAT(sentence_of([&] { account.check_updates(held); }), Catch::Contains("other elements than the 512"));
}

TEST_CASE("ranges beyond a parameter, also those that wrap around, are refused", "[account]") {
  const Model model;
  StepAccount account(model.desc);
  account.begin(0, model.both);
  for (const ddh_range& range : {ddh_range{3, 0, 0, 0, 1}, ddh_range{-1, 0, 0, 0, 1}, ddh_range{0, 0, 1001, 0, 0},
                                 ddh_range{0, 0, 64, 0, UINT64_MAX}, ddh_range{1, 0, 64, 0, 67}})
    CHECK_FALSE(sentence_of([&] { account.check_range(range); }).empty());
  CHECK_THAT(sentence_of([] { ddhost::detail::check_ranges(nullptr, 1); }), Catch::Contains("ranges is NULL"));
  CHECK(sentence_of([] { ddhost::detail::check_ranges(nullptr, 0); }).empty());
}

TEST_CASE("a range that is not cut at the grid is refused, because its norm would have other bits", "[account]") {
  const Model model;
  StepAccount account(model.desc);
  account.begin(0, model.both);
  for (const ddh_range& range : {ddh_range{0, 0, 100, 0, 64}, ddh_range{0, 0, 0, 0, 100}})
    CHECK_THAT(sentence_of([&] { account.check_range(range); }), Catch::Contains("multiples of 64"));
  CHECK(sentence_of([&] { account.check_range({0, 0, 960, 0, 40}); }).empty());  // the parameter's end
}

TEST_CASE("a range at a place off the grid of the buffers is refused, because slots have an element for each block",
          "[account]") {
  const Model model;
  StepAccount account(model.desc);
  account.begin(0, model.both);
  CHECK_THAT(sentence_of([&] {
               account.check_range({1, 0, 0, 1032, 130});
             }),
             Catch::Contains("'b'") && Catch::Contains("element 1032") && Catch::Contains("no multiple of 64"));
  CHECK(sentence_of([&] { account.check_range({1, 0, 0, 1024, 130}); }).empty());
}
