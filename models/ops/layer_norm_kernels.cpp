// SPDX-License-Identifier: Apache-2.0
#include "layer_norm_kernels.hpp"

#include "elements.hpp"

namespace ops {
namespace {

constexpr int64_t kParts = 64;

struct Value {
  const float* x;
  DDH_SIMD_INLINE float at(int64_t i) const { return x[i]; }
};
struct SquaredDistance {
  const float* x;
  float mean;
  DDH_SIMD_INLINE float at(int64_t i) const { return (x[i] - mean) * (x[i] - mean); }
};

template <class Element>
struct Forward {
  DDH_SIMD_BODY void run(const float* x, const LayerNormParameters& of, int64_t rows, int64_t width, float eps,
                         Element* y, float* mean, float* rstd) {
    const LayerNormParameters p = of;
    const auto n = static_cast<float>(width);
    for (int64_t r = 0; r < rows; ++r, x += width, y += width) {
      const float m = row_sum<kParts>(Value{x}, width) / n;
      const float scale = 1.0F / __builtin_sqrtf(row_sum<kParts>(SquaredDistance{x, m}, width) / n + eps);
      mean[r] = m;
      rstd[r] = scale;
      if (p.bias != nullptr) {
        DDH_SIMD_LOOP
        for (int64_t i = 0; i < width; ++i) store(y + i, (x[i] - m) * scale * p.weight[i] + p.bias[i]);
      } else {
        DDH_SIMD_LOOP
        for (int64_t i = 0; i < width; ++i) store(y + i, (x[i] - m) * scale * p.weight[i]);
      }
    }
  }
};

// The gradient of the normed value, and its product with x - mean.
struct NormedGradient {
  const float *dy, *weight;
  DDH_SIMD_INLINE float at(int64_t i) const { return dy[i] * weight[i]; }
};
struct GradientByDistance {
  const float *dy, *weight, *x;
  float mean;
  DDH_SIMD_INLINE float at(int64_t i) const { return dy[i] * weight[i] * (x[i] - mean); }
};

// With g = dy weight and d = x - mean: dx = (g - mean of g - d rstd^2 times the mean of g d) rstd.
struct Backward {
  DDH_SIMD_BODY void run(const LayerNormBackwardRows& in, const float* weight, const float* past_norm, float* dx) {
    const LayerNormBackwardRows s = in;
    const auto n = static_cast<float>(s.width);
    const float *dy = s.dy, *x = s.x;
    for (int64_t r = 0; r < s.rows; ++r, x += s.width, dy += s.width, dx += s.width) {
      const float m = s.mean[r], scale = s.rstd[r];
      const float mean_g = row_sum<kParts>(NormedGradient{dy, weight}, s.width) / n;
      const float slope = row_sum<kParts>(GradientByDistance{dy, weight, x, m}, s.width) / n * scale * scale;
      if (past_norm != nullptr) {
        DDH_SIMD_LOOP
        for (int64_t i = 0; i < s.width; ++i)
          dx[i] = (dy[i] * weight[i] - mean_g - (x[i] - m) * slope) * scale + past_norm[i];
        past_norm += s.width;
      } else {
        DDH_SIMD_LOOP
        for (int64_t i = 0; i < s.width; ++i) dx[i] = (dy[i] * weight[i] - mean_g - (x[i] - m) * slope) * scale;
      }
    }
  }
};

}  // namespace

template <class Element>
void layer_norm_rows(const float* x, const LayerNormParameters& of, int64_t rows, int64_t width, float eps, Element* y,
                     float* mean, float* rstd) {
  ddh::Kernel<Forward<Element>>::run(x, of, rows, width, eps, y, mean, rstd);
}

void layer_norm_rows_backward(const LayerNormBackwardRows& in, const float* weight, const float* past_norm, float* dx) {
  ddh::Kernel<Backward>::run(in, weight, past_norm, dx);
}

template void layer_norm_rows(const float*, const LayerNormParameters&, int64_t, int64_t, float, float*, float*,
                              float*);
template void layer_norm_rows(const float*, const LayerNormParameters&, int64_t, int64_t, float, uint16_t*, float*,
                              float*);
template void layer_norm_rows(const float*, const LayerNormParameters&, int64_t, int64_t, float, Half*, float*, float*);

}  // namespace ops
