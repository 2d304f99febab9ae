// SPDX-License-Identifier: Apache-2.0
//
// constant: a linear warm-up, then the optimizer's lr.
#include "decay.hpp"
#include "options.hpp"

namespace {

class Constant final : public WithWarmup {
 public:
  using WithWarmup::WithWarmup;

 private:
  [[nodiscard]] double after_warmup(double /*done*/) const override { return lr_; }
};

constexpr ddh::Option kOptions[] = {kWarmupSteps, kWarmupFromZero};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(Constant, schedule, "constant", "0.1.0", "warm-up, then a constant rate", ddh::kSchemaOf<kOptions>,
               kNeeds, DDH_CAP_IN_PROCESS);
