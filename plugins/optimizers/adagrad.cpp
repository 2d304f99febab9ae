// SPDX-License-Identifier: Apache-2.0
//
// adagrad: steps that shrink with the sum of squared gradients (Duchi, Hazan and Singer 2011), as torch.optim.Adagrad
// does it:
//
//   g += weight_decay p
//   sum += g^2                                 begins at initial_accumulator_value
//   p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(sum) + eps)          t = updates of this parameter
//
// State: one fp32 number per element. One pass: 20 bytes per element.
#include "adagrad.hpp"

namespace {

constexpr ddh::Option kOptions[] = {
    ddh::lr_option("1e-2"),
    {"lr_decay", "number", "0", ddh::kAtLeast0,
     "the learning rate is divided by 1 + lr_decay times the updates so far"},
    {"eps", "number", "1e-10", ddh::kAtLeast0, "added to the denominator"},
    {"initial_accumulator_value", "number", "0", ddh::kAtLeast0, "first value of the sums of squares"},
    {"weight_decay", "number", "0", ddh::kAtLeast0,
     "L2 weight decay: this times the parameter is added to the gradient"},
    ddh::kDecayGroupsOption,
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

class Adagrad final : public ddh::ElementwiseOptimizer<Adagrad> {
 public:
  explicit Adagrad(const ddh_create& create)
      : ElementwiseOptimizer(create, DDH_KERNEL_IMAGE(adagrad)),
        lr_decay_(options.f64("lr_decay")),
        eps_(options.f64("eps")),
        initial_(options.f64("initial_accumulator_value")) {}
  static constexpr auto kSlots = ddh::slots("sum");

  template <class Use>
  void with_formula(const ddh::ParamStep& step, Use&& use) const {
    const float decay = ddh::f32(step.weight_decay), initial = ddh::f32(initial_), eps = ddh::f32(eps_);
    const float lr = ddh::f32(step.lr / (1.0 + static_cast<double>(step.t - 1) * lr_decay_));
    if (step.t == 1)
      use(adagrad::Formula<true>{decay, initial, eps, lr});
    else
      use(adagrad::Formula<false>{decay, initial, eps, lr});
  }

 private:
  const double lr_decay_, eps_, initial_;
};

}  // namespace

DDH_CXX_PLUGIN(Adagrad, optimizer, "adagrad", "0.1.0", "steps by the sum of squared gradients",
               ddh::kSchemaOf<kOptions>, kNeeds, DDH_CAP_IN_PROCESS | DDH_CAP_CLIP_VALUE | kKernelCaps,
               .wants = kKernelWants);
