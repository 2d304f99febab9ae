// SPDX-License-Identifier: Apache-2.0
//
// plugins/optimizers/adam.hpp: the update of adam and adamw, and of muon for parameters that are not matrices (Kingma
// and Ba 2015):
//
//   m  = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
//   p -= lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)          t = updates of this parameter
//
// Without bias_correction the two divisors that depend on t are 1.
// Weight decay is decoupled (p -= lr weight_decay p, before the update) or L2 (g += weight_decay p, first).
//
// State: two fp32 numbers per element. One pass: reads g, p, m, v and writes p, m, v, 28 bytes per element. It uses
// ordinary stores, because the cache lines have just been loaded.
#pragma once

#include <cmath>

#include "ddh/sdk/kernels/elementwise.hpp"
#include "kernel_image.hpp"

namespace adam DDH_HIDDEN {

enum class Decay { decoupled, l2 };

struct Rates {
  ddh::Betas betas;
  double eps = 0;
  bool bias_correction = true;
};

template <Decay kDecay>
struct Formula {
  float decay;  // L2: weight_decay
  float keep;   // decoupled: 1 - lr * weight_decay
  float beta2;
  float weight1;         // 1 - beta1
  float weight2;         // 1 - beta2
  float inv_sqrt_bias2;  // 1 / sqrt(1 - beta2^t)
  float eps;
  float step_size;  // lr / (1 - beta1^t)

  static constexpr const char* kKernel = kDecay == Decay::l2 ? "adam_l2" : "adam_decoupled";

  DDH_SIMD_INLINE float operator()(float p, float scaled, float& m, float& v) const {
    const float g = kDecay == Decay::l2 ? scaled + decay * p : scaled;
    m = m + weight1 * (g - m);
    v = beta2 * v + (weight2 * g) * g;
    const float denom = std::sqrt(v) * inv_sqrt_bias2 + eps;
    const float kept = kDecay == Decay::l2 ? p : p * keep;
    return kept - step_size * (m / denom);
  }
};

template <Decay kDecay>
Formula<kDecay> formula_of(const Rates& rates, const ddh::ParamStep& step) {
  const auto t = static_cast<double>(step.t);
  Formula<kDecay> f{};
  f.decay = ddh::f32(step.weight_decay);
  f.keep = ddh::f32(1.0 - step.lr * step.weight_decay);
  f.beta2 = ddh::f32(rates.betas.second);
  f.weight1 = ddh::f32(1.0 - rates.betas.first);
  f.weight2 = ddh::f32(1.0 - rates.betas.second);
  const auto bias = [&](double beta) { return rates.bias_correction ? 1.0 - std::pow(beta, t) : 1.0; };
  f.inv_sqrt_bias2 = ddh::f32(1.0 / std::sqrt(bias(rates.betas.second)));
  f.eps = ddh::f32(rates.eps);
  f.step_size = ddh::f32(step.lr / bias(rates.betas.first));
  return f;
}

// The plugin class of adam and adamw.
template <Decay kDecay>
class Plugin final : public ddh::ElementwiseOptimizer<Plugin<kDecay>> {
 public:
  explicit Plugin(const ddh_create& create)
      : ddh::ElementwiseOptimizer<Plugin>(create, DDH_KERNEL_IMAGE(adam)),
        rates_{ddh::betas(this->options, "betas"), this->options.f64("eps"), this->options.flag("bias_correction")} {}
  static constexpr auto kSlots = ddh::slots("exp_avg", "exp_avg_sq");
  [[nodiscard]] Formula<kDecay> formula(const ddh::ParamStep& step) const { return formula_of<kDecay>(rates_, step); }

 private:
  const Rates rates_;
};

// Rows for tables of options.
inline constexpr ddh::Option kBetasOption =
    ddh::two_rates_option("betas", "[0.9, 0.999]", "decay of the first and second moment");
inline constexpr ddh::Option kBiasOption = {"bias_correction", "boolean", "true", "",
                                            "divide the moments by 1 - beta^t"};
inline constexpr ddh::Option kEpsOption = {"eps", "number", "1e-8", ddh::kAtLeast0, "added to the denominator"};

}  // namespace DDH_HIDDEN
