// SPDX-License-Identifier: Apache-2.0
//
// signum: the sign of a momentum (Bernstein et al. 2018, "signSGD: Compressed Optimisation for Non-Convex Problems"):
//
//   m = momentum m + (1 - momentum) g
//   p -= lr weight_decay p + lr sign(m)
//
// State: one fp32 number per element. The sign of 0 is 0, of a NaN the NaN. Lion with equal betas makes the same steps, and
// tests/abi/examples_train.sh compares the bits of both.
//
//   ddhost --optimizer ./signum.so optimizer.lr=1e-4
#include "ddh/sdk/kernels/elementwise.hpp"

namespace {

constexpr ddh::Option kOptions[] = {
    ddh::lr_option("1e-4"),
    {"momentum", "number", "0.9", ddh::kAtLeast0, "share of the momentum that a step keeps"},
    {"weight_decay", "number", "0", ddh::kAtLeast0, "decoupled weight decay"},
    ddh::kDecayGroupsOption,
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

class Signum final : public ddh::ElementwiseOptimizer<Signum> {
 public:
  explicit Signum(const ddh_create& create) : ElementwiseOptimizer(create), momentum_(options.f64("momentum")) {
    if (momentum_ >= 1)
      ddh::fail(DDH_INVALID_ARGUMENT, options.key("momentum"), " is ", momentum_,
                ", which takes nothing of a gradient; give a number below 1");
  }
  static constexpr auto kSlots = ddh::slots("momentum");

  // One element. Only its own value, gradient and state: so the result is the same in every range and at every width of
  // vectors.
  struct Formula {
    float keep, weight, lr;
    DDH_SIMD_INLINE float operator()(float p, float g, float& m) const {
      m = m + weight * (g - m);
      const float sign = m > 0.0f ? 1.0f : m < 0.0f ? -1.0f : m;
      return p * keep - lr * sign;
    }
  };

  // The scalars of one update of one parameter: computed in double, rounded once.
  [[nodiscard]] Formula formula(const ddh::ParamStep& step) const {
    return {ddh::f32(1.0 - step.lr * step.weight_decay), ddh::f32(1.0 - momentum_), ddh::f32(step.lr)};
  }

 private:
  const double momentum_;
};

}  // namespace

DDH_CXX_PLUGIN(Signum, optimizer, "signum", "0.1.0", "sign of a momentum", ddh::kSchemaOf<kOptions>, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_CLIP_VALUE);
