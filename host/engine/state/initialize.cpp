// SPDX-License-Identifier: Apache-2.0
#include "engine/state/initialize.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string_view>

#include "checkpoint/usable_values.hpp"
#include "ddh/sdk/counter_rng.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/state/state_entries.hpp"

namespace ddhost {
namespace {

// The probability of a normal within the bounds of DDH_INIT_TRUNC_NORMAL.
double part_within(const ddh_param_desc& param) {
  const auto below = [&](double x) { return 0.5 * std::erfc(-(x - param.init_a) / (param.init_b * std::sqrt(2.0))); };
  return below(param.init_high) - below(param.init_low);
}

constexpr double kLeastPart = 1.0 / 64;  // limits the number of draws to some hundred, except for few values

void check_truncated(const ddh_param_desc& param) {
  const bool is_finite = std::isfinite(param.init_a) && std::isfinite(param.init_b) && std::isfinite(param.init_low) &&
                         std::isfinite(param.init_high);
  if (!is_finite || param.init_b <= 0 || param.init_low >= param.init_high)
    ddh::fail(DDH_INVALID_ARGUMENT, "parameter '", param.name, "' is drawn from a normal of mean ", param.init_a,
              " and deviation ", param.init_b, " within [", param.init_low, ", ", param.init_high,
              "]; give finite numbers, a deviation above 0 and low < high");
  if (part_within(param) < kLeastPart)
    ddh::fail(DDH_INVALID_ARGUMENT, "parameter '", param.name, "': only ", part_within(param), " of a normal of mean ",
              param.init_a, " and deviation ", param.init_b, " lies within [", param.init_low, ", ", param.init_high,
              "]; widen the bounds, or use DDH_INIT_UNIFORM");
}

// Element i reads the pairs of normals i, i + numel, i + 2 numel ... of the stream and takes the first value within the
// bounds, so it does not depend on other elements. Bounds and values are compared after rounding to fp32.
float truncated_normal(const ddh::CounterRng& rng, const ddh_param_desc& param, uint64_t i) {
  const auto mean = static_cast<float>(param.init_a), deviation = static_cast<float>(param.init_b);
  const auto is_within = [&](float x) {
    return static_cast<double>(x) >= param.init_low && static_cast<double>(x) <= param.init_high;
  };
  constexpr uint64_t kMostPairs = 1 << 13;  // (1 - kLeastPart) to the power of twice as many is 1e-112
  for (uint64_t pair = 0; pair < kMostPairs; ++pair) {
    const auto [first, second] = rng.normal_pair(i + pair * param.numel);
    for (const float normal : {first, second}) {
      const float value = mean + deviation * normal;
      if (is_within(value)) return value;
    }
  }
  ddh::fail(DDH_OUT_OF_RANGE, "no fp32 value of parameter '", param.name, "' was found within [", param.init_low, ", ",
            param.init_high, "]; widen the bounds");
}

}  // namespace

ParamInit::ParamInit(const ddh_model_desc& model, uint64_t seed, const std::vector<InitFile>& files)
    : model_(model), seed_(seed), files_(model, files) {
  for (uint32_t p = 0; p < model.n_params; ++p)
    if (model.params[p]->init_kind == DDH_INIT_TRUNC_NORMAL) check_truncated(*model.params[p]);
}

void ParamInit::init_range(int32_t index, uint64_t offset, uint64_t numel, float* dst) const {
  if (index < 0 || static_cast<uint32_t>(index) >= model_.n_params) {
    ddh::fail(DDH_OUT_OF_RANGE, "parameter ", index, " of ", model_.n_params);
  }
  const ddh_param_desc& param = *model_.params[index];
  if (offset > param.numel || numel > param.numel - offset) {
    ddh::fail(DDH_OUT_OF_RANGE, "elements ", offset, " to ", offset + numel, " of parameter '", param.name,
              "', which has ", param.numel);
  }
  if (!files_.read_range(index, offset, numel, dst)) return draw(param, offset, numel, dst);
  if (const std::optional<uint64_t> at = first_nonfinite(dst, numel))
    ddh::fail(DDH_DATA_LOSS, "the weights of train.init_from (--weights) are not finite: parameter '", param.name,
              "' from element ", offset + *at, " on; give a file of a run that ended well");
}

void ParamInit::draw(const ddh_param_desc& param, uint64_t offset, uint64_t numel, float* dst) const {
  const ddh::CounterRng rng(seed_, param.name);
  switch (param.init_kind) {
    case DDH_INIT_ZERO:
      std::fill_n(dst, numel, 0.0F);
      return;
    case DDH_INIT_CONSTANT:
      std::fill_n(dst, numel, static_cast<float>(param.init_a));
      return;
    case DDH_INIT_UNIFORM:
      for (uint64_t i = 0; i < numel; ++i) {
        dst[i] = static_cast<float>(param.init_a + (param.init_b - param.init_a) * rng.uniform(offset + i));
      }
      return;
    case DDH_INIT_NORMAL:
      for (uint64_t at = offset / 2 * 2; at < offset + numel; at += 2) {
        const auto [first, second] = rng.normal_pair(at / 2);
        const auto value = [&](float normal) {
          return static_cast<float>(param.init_a) + static_cast<float>(param.init_b) * normal;
        };
        if (at >= offset) dst[at - offset] = value(first);
        if (at + 1 < offset + numel) dst[at + 1 - offset] = value(second);
      }
      return;
    case DDH_INIT_TRUNC_NORMAL:
      for (uint64_t i = 0; i < numel; ++i) dst[i] = truncated_normal(rng, param, offset + i);
      return;
    default:
      ddh::fail(DDH_UNIMPLEMENTED, "parameter '", param.name, "' has init kind ", param.init_kind,
                ", unknown to this host");
  }
}

}  // namespace ddhost
