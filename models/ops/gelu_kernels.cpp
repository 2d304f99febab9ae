// SPDX-License-Identifier: Apache-2.0
#include "gelu_kernels.hpp"

#include "elements.hpp"
#include "exponential.hpp"
#include "fused_kernel.hpp"

namespace ops {
namespace {

// Phi(-t) = exp(-t^2 / 2) R(t) for t >= 0. R is a polynomial of degree 8 in 1 / (1 + 0.295 t), the form of Abramowitz and
// Stegun 7.1.26; least squares with weights that even out the relative error, 7e-8 for t below 14.
DDH_SIMD_INLINE float mills_ratio(float t) {
  const float s = 1.0F / (1.0F + 0.295F * t);
  float p = 0.0394211449F;
  p = p * s - 0.183406144F;
  p = p * s + 0.271016538F;
  p = p * s - 0.117071025F;
  p = p * s + 0.166288927F;
  p = p * s + 0.0847448260F;
  p = p * s + 0.121699385F;
  p = p * s + 0.117289342F;
  return p * s + 1.70069052e-05F;
}

template <Gelu kForm>
struct Form;

// `bell`: exp(-x^2 / 2).
template <>
struct Form<Gelu::kErf> {
  DDH_SIMD_BODY float distribution(float x, float bell) {
    const float below = bell * mills_ratio(x < 0 ? -x : x);  // Phi(-|x|)
    return x < 0 ? below : 1.0F - below;
  }
  DDH_SIMD_BODY float value(float x) { return x * distribution(x, exponential_below(-0.5F * x * x)); }
  DDH_SIMD_BODY float slope(float x) {
    constexpr float kDensityAtZero = 0.398942280F;  // 1 / sqrt(2 pi)
    const float bell = exponential_below(-0.5F * x * x);
    return distribution(x, bell) + x * bell * kDensityAtZero;
  }
};

// x logistic(u): (1 + tanh(v)) / 2 is the logistic function of u = 2 v. With e = exp(-|u|) nothing cancels: the function is
// 1 / (1 + e) for u >= 0 and e / (1 + e) below, and its slope e / (1 + e)^2.
template <>
struct Form<Gelu::kTanh> {
  static constexpr float kFactor = 1.59576912F, kCubic = 0.044715F;  // 2 sqrt(2 / pi)
  struct Logistic {
    float value, slope;
  };
  DDH_SIMD_BODY Logistic logistic_at(float x) {
    const float u = kFactor * (x + kCubic * x * x * x), e = exponential_below(u < 0 ? u : -u), part = 1.0F / (1.0F + e);
    return {u < 0 ? e * part : part, e * part * part};
  }
  DDH_SIMD_BODY float value(float x) { return x * logistic_at(x).value; }
  DDH_SIMD_BODY float slope(float x) {
    const Logistic at = logistic_at(x);
    const float near = x > 30 ? 30.0F : x < -30 ? -30.0F : x;  // beyond, the slope is 0, and a square may be infinite
    return at.value + at.slope * (near * kFactor * (1.0F + 3.0F * kCubic * near * near));
  }
};

template <class Element, Gelu kForm>
struct Forward {
  DDH_SIMD_BODY void run(const Element* x, int64_t numel, Element* y) {
    DDH_SIMD_LOOP
    for (int64_t i = 0; i < numel; ++i) store(y + i, Form<kForm>::value(widened(x[i])));
  }
};

template <class Element, Gelu kForm>
struct Backward {
  DDH_SIMD_BODY void run(const Element* dy, const Element* x, int64_t numel, Element* dx) {
    DDH_SIMD_LOOP
    for (int64_t i = 0; i < numel; ++i) store(dx + i, widened(dy[i]) * Form<kForm>::slope(widened(x[i])));
  }
};

}  // namespace

template <class Element>
void gelu_elements(Gelu form, const Element* x, int64_t numel, Element* y) {
  if (form == Gelu::kTanh)
    FusedKernel<Forward<Element, Gelu::kTanh>>::run(x, numel, y);
  else
    FusedKernel<Forward<Element, Gelu::kErf>>::run(x, numel, y);
}

template <class Element>
void gelu_elements_backward(Gelu form, const Element* dy, const Element* x, int64_t numel, Element* dx) {
  if (form == Gelu::kTanh)
    FusedKernel<Backward<Element, Gelu::kTanh>>::run(dy, x, numel, dx);
  else
    FusedKernel<Backward<Element, Gelu::kErf>>::run(dy, x, numel, dx);
}

template void gelu_elements(Gelu, const float*, int64_t, float*);
template void gelu_elements(Gelu, const uint16_t*, int64_t, uint16_t*);
template void gelu_elements(Gelu, const Half*, int64_t, Half*);
template void gelu_elements_backward(Gelu, const float*, const float*, int64_t, float*);
template void gelu_elements_backward(Gelu, const uint16_t*, const uint16_t*, int64_t, uint16_t*);
template void gelu_elements_backward(Gelu, const Half*, const Half*, int64_t, Half*);

}  // namespace ops
