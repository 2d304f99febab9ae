// SPDX-License-Identifier: Apache-2.0
//
// First values of parameters: the same however they are cut, and distributed as described.
#include "services/param_init.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "ddh/sdk/plugin.hpp"

using namespace ddhost;

namespace {

constexpr uint64_t kNumel = 100'000;

struct OneParam {
  int64_t shape = static_cast<int64_t>(kNumel);
  ddh_param_desc param{};
  const ddh_param_desc* params[1] = {&param};
  ddh_model_desc model{};
  OneParam(int32_t kind, double a, double b) {
    param = {sizeof param, DDH_F32, "weight", &shape, kNumel, 1, 0, 0, kind, a, b, nullptr, 0, 0, 0, 0, 0};
    model.struct_size = sizeof model;
    model.n_params = 1;
    model.params = params;
  }
  std::vector<float> draw(uint64_t seed, uint64_t piece) const {
    std::vector<float> out(kNumel);
    const ParamInit init(model, seed, "");
    for (uint64_t at = 0; at < kNumel; at += piece) init.init_range(0, at, std::min(piece, kNumel - at), &out[at]);
    return out;
  }
};

}  // namespace

TEST_CASE("initial values don't depend on how a parameter is cut") {
  const int32_t kind = GENERATE(DDH_INIT_NORMAL, DDH_INIT_UNIFORM);
  const OneParam p(kind, 0.5, 2.0);
  const std::vector<float> whole = p.draw(7, kNumel);
  CHECK(whole == p.draw(7, 64));
  CHECK(whole == p.draw(7, 7));
  CHECK(whole == p.draw(7, 64 * 333));
  CHECK(whole != p.draw(8, kNumel));
}

TEST_CASE("normal values have the mean, the deviation and the tails of a normal") {
  const std::vector<float> x = OneParam(DDH_INIT_NORMAL, 1.0, 0.02).draw(1337, kNumel);
  double mean = 0, square = 0;
  int beyond_two = 0;
  for (const float v : x) {
    mean += v;
    square += (v - 1.0) * (v - 1.0);
    beyond_two += std::abs(v - 1.0F) > 0.04F;
  }
  CHECK(mean / kNumel == Approx(1.0).margin(0.02 * 4 / std::sqrt(kNumel)));
  CHECK(std::sqrt(square / kNumel) == Approx(0.02).epsilon(0.01));
  CHECK(beyond_two / static_cast<double>(kNumel) == Approx(0.0455).epsilon(0.06));
}

TEST_CASE("uniform values fill their interval and constants are constant") {
  const std::vector<float> x = OneParam(DDH_INIT_UNIFORM, -1.0, 3.0).draw(3, kNumel);
  CHECK(*std::min_element(x.begin(), x.end()) == Approx(-1).margin(0.01));
  CHECK(*std::max_element(x.begin(), x.end()) < 3.0F);
  CHECK(*std::max_element(x.begin(), x.end()) == Approx(3).margin(0.01));
  CHECK(OneParam(DDH_INIT_CONSTANT, 0.25, 0).draw(3, 64) == std::vector<float>(kNumel, 0.25F));
  CHECK(OneParam(DDH_INIT_ZERO, 9, 9).draw(3, 64) == std::vector<float>(kNumel, 0.0F));
}

TEST_CASE("elements beyond a parameter are refused by name") {
  const OneParam p(DDH_INIT_ZERO, 0, 0);
  float out[2];
  CHECK_THROWS_WITH(ParamInit(p.model, 1, "").init_range(0, kNumel - 1, 2, out), Catch::Contains("weight"));
}
