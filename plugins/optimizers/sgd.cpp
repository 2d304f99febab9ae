// SPDX-License-Identifier: Apache-2.0
//
// sgd: gradient descent with momentum and coupled weight decay, as torch.optim.SGD does it:
//
//   g += weight_decay p
//   buf = g (first update), momentum buf + (1 - dampening) g (later)          only with momentum
//   p -= lr (g + momentum buf) (nesterov), lr buf, or lr g (no momentum)
//
// State: one fp32 number per element, none without momentum. One pass: 20 bytes per element, 12 without momentum.
#include "sgd.hpp"

namespace {

constexpr ddh::Option kOptions[] = {
    ddh::lr_option("1e-3"),
    {"momentum", "number", "0", ddh::kAtLeast0,
     "decay of the momentum; 0: no momentum, which saves 4 bytes an element"},
    {"dampening", "number", "0", "", "fraction of a gradient that is left out of the momentum"},
    {"nesterov", "boolean", "false", "", "use Nesterov momentum; needs momentum above 0 and dampening 0"},
    {"weight_decay", "number", "0", ddh::kAtLeast0,
     "L2 weight decay: this times the parameter is added to the gradient"},
    ddh::kDecayGroupsOption,
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

class Sgd final : public ddh::ElementwiseOptimizer<Sgd> {
 public:
  explicit Sgd(const ddh_create& create)
      : ElementwiseOptimizer(create, DDH_KERNEL_IMAGE(sgd)),
        momentum_(options.f64("momentum")),
        dampening_(options.f64("dampening")),
        nesterov_(options.flag("nesterov")) {
    if (nesterov_ && (momentum_ <= 0 || dampening_ != 0))
      ddh::fail(DDH_INVALID_ARGUMENT, options.key("nesterov"), " needs momentum and no dampening, but momentum is ",
                momentum_, " and dampening ", dampening_, "; set ", options.key("momentum"), " above 0 and ",
                options.key("dampening"), " to 0");
  }
  static constexpr auto kSlots = ddh::slots("momentum_buffer");
  [[nodiscard]] std::span<const ddh_slot_desc> slots() const noexcept override {
    return std::span(kSlots).first(momentum_ > 0 ? 1 : 0);
  }

  template <class Use>
  void with_formula(const ddh::ParamStep& step, Use&& use) const {
    const float decay = ddh::f32(step.weight_decay), lr = ddh::f32(step.lr);
    const float momentum = ddh::f32(momentum_), weight = ddh::f32(1.0 - dampening_);
    if (momentum_ <= 0) return use(sgd::Plain{decay, lr});
    if (nesterov_ && step.t == 1) return use(sgd::Momentum<true, true>{decay, lr, momentum, weight});
    if (nesterov_) return use(sgd::Momentum<true, false>{decay, lr, momentum, weight});
    if (step.t == 1) return use(sgd::Momentum<false, true>{decay, lr, momentum, weight});
    use(sgd::Momentum<false, false>{decay, lr, momentum, weight});
  }

 private:
  const double momentum_, dampening_;
  const bool nesterov_;
};

}  // namespace

DDH_CXX_PLUGIN(Sgd, optimizer, "sgd", "0.1.0", "gradient descent with momentum", ddh::kSchemaOf<kOptions>, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_CLIP_VALUE | kKernelCaps, .wants = kKernelWants);
