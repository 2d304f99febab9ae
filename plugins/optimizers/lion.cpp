// SPDX-License-Identifier: Apache-2.0
//
// lion: the sign of an interpolated momentum (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms"), as
// the paper's authors publish it:
//
//   p -= lr weight_decay p
//   p -= lr sign(beta1 m + (1 - beta1) g)          m = beta2 m + (1 - beta2) g
//
// State: one fp32 number per element. One pass: 20 bytes per element. The sign of 0 is 0, of a NaN the NaN.
#include "lion.hpp"

namespace {

constexpr ddh::Option kOptions[] = {
    ddh::lr_option(
        "1e-4",
        "learning rate; the schedule computes the rate of each step from it. Use a third to a tenth of adamw's"),
    ddh::two_rates_option("betas", "[0.9, 0.99]", "share of the momentum in the sign, and decay of the momentum"),
    {"weight_decay", "number", "0", ddh::kAtLeast0, "decoupled weight decay. Use three to ten times adamw's"},
    ddh::kDecayGroupsOption,
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

class Lion final : public ddh::ElementwiseOptimizer<Lion> {
 public:
  explicit Lion(const ddh_create& create)
      : ElementwiseOptimizer(create, DDH_KERNEL_IMAGE(lion)), betas_(ddh::betas(options, "betas")) {}
  static constexpr auto kSlots = ddh::slots("exp_avg");

  [[nodiscard]] lion::Formula formula(const ddh::ParamStep& step) const {
    return {ddh::f32(1.0 - step.lr * step.weight_decay), ddh::f32(1.0 - betas_.first), ddh::f32(1.0 - betas_.second),
            ddh::f32(step.lr)};
  }

 private:
  const ddh::Betas betas_;
};

}  // namespace

DDH_CXX_PLUGIN(Lion, optimizer, "lion", "0.1.0", "sign of an interpolated momentum", ddh::kSchemaOf<kOptions>, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_CLIP_VALUE | kKernelCaps, .wants = kKernelWants);
