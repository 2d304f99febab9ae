// SPDX-License-Identifier: Apache-2.0
//
// A model's description reaches host, strategy and optimizer as this host's structs, whatever version the model is of.
#include "engine/checks/check_model.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <optional>
#include <utility>

#include "ddh/sdk/model.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;
using namespace ddhost::test;

namespace {

// A parameter as a later SDK describes it.
struct NewerParam {
  ddh_param_desc known;
  uint64_t later;
};

struct Described {
  NewerParam newer{};
  ddh_param_desc plain{};
  ddh_unit_desc unit{};
  std::array<const ddh_param_desc*, 2> params{&newer.known, &plain};
  std::array<const ddh_unit_desc*, 1> units{&unit};
  ddh_model_desc model{};
  Described() {
    newer.known.struct_size = sizeof newer, newer.known.name = "newer", newer.known.numel = 3;
    plain.struct_size = sizeof plain, plain.name = "plain";
    unit.struct_size = sizeof unit;
    model.struct_size = sizeof model, model.name = "m";
    model.n_params = 2, model.params = params.data(), model.n_units = 1, model.units = units.data();
  }
  [[nodiscard]] std::string refusal() const {
    return sentence_of([&] { const ModelCopy copy(&model); });
  }
};

}  // namespace

TEST_CASE("descriptions of newer models are read as this host's structs", "[model]") {
  const Described given;
  ModelCopy first(&given.model);
  const ddh_model_desc* at = first.get();
  const ModelCopy copy = std::move(first);
  CHECK(copy.get() == at);
  CHECK(at->params[0]->struct_size == sizeof(ddh_param_desc));
  CHECK(at->params[0]->numel == 3);
  CHECK(std::string(at->params[1]->name) == "plain");
  CHECK(at->n_units == 1);
}

TEST_CASE("unknown contents of a description are refused with their place", "[model]") {
  Described given;
  given.newer.later = 1;
  CHECK_THAT(given.refusal(), Catch::Contains("parameter 0 of the model: ddh_param_desc is of a newer version"));
  given.newer.later = 0, given.plain.reserved0 = 4;
  CHECK_THAT(given.refusal(), Catch::Contains("parameter 1 of the model: ddh_param_desc.reserved0 is 4"));
  given.plain.reserved0 = 0, given.plain.attributes = 64;
  CHECK_THAT(given.refusal(), Catch::Contains("ddh_param_desc.attributes is 64, of which the bits 64 are unknown"));
  given.plain.attributes = 0, given.unit.struct_size = 8;
  CHECK_THAT(given.refusal(), Catch::Contains("unit 0 of the model: ddh_unit_desc.struct_size is 8"));
  given.units[0] = nullptr;
  CHECK_THAT(given.refusal(), Catch::Contains("unit 0 of the model: a ddh_unit_desc is NULL"));
  given.model.units = nullptr;
  CHECK_THAT(given.refusal(), Catch::Contains("describes 1 units but gives no array"));
  given.model.reserved0 = 1;
  CHECK_THAT(given.refusal(), Catch::Contains("ddh_model_desc.reserved0"));
}

TEST_CASE("a layout of another program transposes matrices, and one of them shows it", "[model]") {
  const std::vector<std::pair<std::string, std::vector<int64_t>>> params = {
      {"square", {4, 4}}, {"wide", {2, 4}}, {"bias", {4}}};
  const auto refusal = [&](std::vector<int32_t> transposed) {
    ddh::ModelDesc with("net");
    for (const auto& [name, shape] : params) with.add_param(0, name, shape, {DDH_INIT_ZERO, 0, 0});
    with.add_unit("unit", {0, 1, 2});
    with.add_layout("theirs", std::move(transposed));
    const ddh_model_desc& model = with.get();
    return sentence_of([&] { check_description(&model); });
  };
  CHECK(refusal({0, 1}).empty());
  CHECK_THAT(refusal({0}), Catch::Contains("layout 'theirs' transposes no parameter with two different sizes"));
  CHECK_THAT(refusal({1, 2}), Catch::Contains("layout 'theirs' transposes parameter 'bias', which has 1 dimensions"));
  CHECK_THAT(refusal({3}), Catch::Contains("layout 'theirs' uses parameter 3 of 3"));
}
