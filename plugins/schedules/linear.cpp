// SPDX-License-Identifier: Apache-2.0
//
// linear: a linear warm-up, then a straight line down to min_lr_ratio of the optimizer's lr.
#include "decay.hpp"
#include "options.hpp"

namespace {

class Linear final : public Decay {
 public:
  using Decay::Decay;

 private:
  [[nodiscard]] double share_left(double progress) const override { return 1 - progress; }
};

constexpr ddh::Option kOptions[] = {kWarmupSteps, kWarmupFromZero, kDecaySteps, min_lr_ratio("0.1")};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(Linear, schedule, "linear", "0.1.0", "warm-up, then a straight line down", ddh::kSchemaOf<kOptions>,
               kNeeds, DDH_CAP_IN_PROCESS);
