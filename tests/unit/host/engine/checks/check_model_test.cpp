// SPDX-License-Identifier: Apache-2.0
//
// What a model's description of its parameters and programs must satisfy; what breaks a rule is named.
#include "engine/checks/check_model.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "ddh/sdk/model.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;
using ddhost::test::sentence_of;

namespace {

constexpr uint32_t kForwardOnly = DDH_POSITION_FORWARD_ONLY, kInputGrad = DDH_POSITION_INPUT_GRAD_ONLY;

struct Spec {
  ddh::ParamOptions options{};
  int32_t kind = DDH_PROGRAM_TRAIN;
  std::vector<int32_t> units = {0, 1, 2};
  std::vector<std::string> metrics = {"loss"};
  std::vector<uint32_t> flags{};
  std::vector<uint8_t> trainable{};
  int32_t optimizer = 0;
  uint64_t n_samples = 8;
};

// Units "first", "middle" and "last", which uses the parameter of the first too.
constexpr uint64_t kAll =
    DDH_FEATURE_POSITIONS | DDH_FEATURE_UPDATES | DDH_FEATURE_PARAM_DTYPES | DDH_FEATURE_OPTIMIZERS;

std::string refusal(const Spec& spec, uint64_t uses = kAll) {
  ddh::ModelDesc desc("units");
  for (int32_t u = 0; u < 3; ++u) desc.add_param(u, "p" + std::to_string(u), {4}, {}, 0, {}, spec.options);
  desc.add_unit("first", {0});
  desc.add_unit("middle", {1});
  desc.add_unit("last", {2, 0});
  desc.add_program({spec.kind, "program", spec.units, spec.metrics, spec.n_samples, "samples", spec.trainable,
                    spec.optimizer, spec.flags});
  return sentence_of([&] { check_model(desc.get(), uses); });
}

}  // namespace

TEST_CASE("the control: a plain program, and one with legal flags", "[check]") {
  CHECK(refusal({}, 0).empty());
  CHECK_THAT(refusal({.trainable = {1, 2, 1}}), Catch::Contains("holds 2 for parameter"));
  CHECK(refusal({.flags = {0, kInputGrad, 0}, .trainable = {1, 0, 1}}).empty());
  CHECK(refusal({.units = {1, 0, 1, 2}, .flags = {kForwardOnly, 0, 0, 0}}).empty());
}

TEST_CASE("flags of positions that are unknown, or exclude each other, are refused", "[check]") {
  CHECK_THAT(refusal({.flags = {0, 4, 0}}), Catch::Contains("position 1") && Catch::Contains("'middle'"));
  CHECK_THAT(refusal({.flags = {0, kForwardOnly | kInputGrad, 0}}), Catch::Contains("choose one"));
}

TEST_CASE("a trained parameter needs a position of its unit that computes gradients", "[check]") {
  const auto flag = GENERATE(kForwardOnly, kInputGrad);
  CHECK_THAT(refusal({.flags = {0, flag, 0}}), Catch::Contains("'p1'") && Catch::Contains("no position of its unit"));
  CHECK(refusal({.flags = {0, flag, 0}, .trainable = {1, 0, 1}}).empty());
  CHECK_THAT(refusal({.units = {0, 2}}), Catch::Contains("'p1'") && Catch::Contains("does not run its unit"));
}

TEST_CASE("no gradient of a parameter comes after the last backward of its owner", "[check]") {
  // "last" at position 1 uses p0, whose owner gives gradients at position 3 alone: its backward is earlier.
  CHECK_THAT(refusal({.units = {0, 2, 1, 0}, .flags = {kForwardOnly, 0, 0, 0}}),
             Catch::Contains("'p0'") && Catch::Contains("'last'") && Catch::Contains("position 1"));
  CHECK(refusal({.units = {0, 2, 1, 0}, .flags = {kForwardOnly, kInputGrad, 0, 0}, .trainable = {1, 1, 0}}).empty());
}

TEST_CASE("an update program has no mask, no metrics and no optimizer", "[check]") {
  const Spec update{.kind = DDH_PROGRAM_UPDATE, .metrics = {}};
  CHECK(refusal(update).empty());
  Spec wrong = update;
  wrong.trainable = {1, 1, 1};
  CHECK_THAT(refusal(wrong), Catch::Contains("'program' has a mask"));
  wrong = update;
  wrong.metrics = {"loss"};
  CHECK_THAT(refusal(wrong), Catch::Contains("'program' has metrics"));
  wrong = update;
  wrong.optimizer = 1;
  CHECK_THAT(refusal(wrong), Catch::Contains("'program' has an optimizer"));
  wrong = update;
  wrong.n_samples = 0;
  CHECK_THAT(refusal(wrong), Catch::Contains("no samples"));
}

TEST_CASE("invalid kinds of programs and indices of optimizers are refused", "[check]") {
  CHECK_THAT(refusal({.kind = 4}), Catch::Contains("of kind 4"));
  CHECK_THAT(refusal({.optimizer = -1}), Catch::Contains("optimizer -1"));
}

TEST_CASE("unsupported dtypes of files or views and invalid factors are refused", "[check]") {
  CHECK_THAT(refusal({.options = {0, DDH_BF16, DDH_F32}}), Catch::Contains("'p0' has compute dtype 2"));
  CHECK(refusal({.options = {0, DDH_F32, DDH_F16}}).empty());
  CHECK_THAT(refusal({.options = {0, 0, DDH_F64}}), Catch::Contains("'p0' is stored in dtype 4"));
  const double scale = GENERATE(-1.0, std::nan(""), std::numeric_limits<double>::infinity());
  CHECK_THAT(refusal({.options = {scale, 0, DDH_F32}}), Catch::Contains("'p0' has lr_scale"));
}

TEST_CASE("blocks of gradients are whole rows on the grid, of parameters that one unit uses once", "[check]") {
  const auto refused = [](std::vector<int64_t> shape, uint64_t grad_block, const std::vector<int32_t>& units = {0, 1}) {
    ddh::ModelDesc desc("blocks");
    desc.add_param(0, "w", std::move(shape), {}, 0, {}, {.grad_block = grad_block});
    desc.add_param(1, "v", {4}, {});
    desc.add_unit("first", {0});
    desc.add_unit("last", {1});
    desc.add_program({DDH_PROGRAM_TRAIN, "program", units, {"loss"}, 8, "samples"});
    return sentence_of([&] { check_model(desc.get(), kAll); });
  };
  CHECK(refused({100, 8}, 64).empty());
  CHECK(refused({100, 8}, 800 / 64 * 64).empty());
  CHECK(refused({128}, 64).empty());
  CHECK_THAT(refused({100, 8}, 8), Catch::Contains("'w' has a grad_block of 8") && Catch::Contains("multiple of 64"));
  CHECK_THAT(refused({100, 6}, 64), Catch::Contains("whole rows of 6 elements"));
  CHECK_THAT(refused({100, 8}, 832), Catch::Contains("at most all 800"));
  CHECK_THAT(refused({100, 8}, 64, {0, 1, 0}), Catch::Contains("several units or positions use it"));
  CHECK_THAT(refusal({.options = {.grad_block = 64}}), Catch::Contains("'p0' has a grad_block of 64"));
}

TEST_CASE("a plugin declares the features that its model uses", "[check]") {
  const uint64_t all = kAll;
  CHECK_THAT(refusal({.flags = {0, kInputGrad, 0}, .trainable = {1, 0, 1}}, all & ~DDH_FEATURE_POSITIONS),
             Catch::Contains("DDH_FEATURE_POSITIONS"));
  CHECK_THAT(refusal({.kind = DDH_PROGRAM_UPDATE, .metrics = {}}, all & ~DDH_FEATURE_UPDATES),
             Catch::Contains("DDH_FEATURE_UPDATES"));
  CHECK_THAT(refusal({.options = {0, DDH_F32, DDH_F32}}, all & ~DDH_FEATURE_PARAM_DTYPES),
             Catch::Contains("DDH_FEATURE_PARAM_DTYPES"));
  CHECK_THAT(refusal({.optimizer = 1}, all & ~DDH_FEATURE_OPTIMIZERS), Catch::Contains("DDH_FEATURE_OPTIMIZERS"));
}

TEST_CASE("a trained program's optimizer must be in the list, and unused optimizers are reported", "[check]") {
  ddh::ModelDesc desc("two");
  desc.add_param(0, "p", {4}, {});
  desc.add_unit("unit", {0});
  desc.add_program({DDH_PROGRAM_TRAIN, "a", {0}, {"loss"}, 8, "samples"});
  desc.add_program({DDH_PROGRAM_TRAIN, "b", {0}, {"loss"}, 8, "samples", {}, 2});
  const ddh_model_desc& model = desc.get();
  const std::vector<std::string> three = {"optimizer", "optimizer_x", "optimizer_y"};
  CHECK(unused_optimizers(model, {0, 1}, three) == std::vector<std::string>{"optimizer_x"});
  CHECK(unused_optimizers(model, {0}, {"optimizer"}).empty());
  CHECK_THROWS_WITH(unused_optimizers(model, {0, 1}, {"optimizer", "optimizer_x"}),
                    Catch::Contains("program 'b'") && Catch::Contains("optimizer 2"));
}
