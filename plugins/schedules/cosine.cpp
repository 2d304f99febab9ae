// SPDX-License-Identifier: Apache-2.0
//
// cosine: a linear warm-up, then half a period of a cosine down to min_lr_ratio of the optimizer's lr.
#include <cmath>
#include <numbers>

#include "decay.hpp"
#include "options.hpp"

namespace {

class Cosine final : public Decay {
 public:
  using Decay::Decay;

 private:
  [[nodiscard]] double share_left(double progress) const override {
    return 0.5 * (1 + std::cos(std::numbers::pi * progress));
  }
};

constexpr ddh::Option kOptions[] = {kWarmupSteps, kWarmupFromZero, kDecaySteps, min_lr_ratio("0.1")};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(Cosine, schedule, "cosine", "0.1.0", "warm-up, then a cosine down", ddh::kSchemaOf<kOptions>, kNeeds,
               DDH_CAP_IN_PROCESS);
