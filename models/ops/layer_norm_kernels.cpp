// SPDX-License-Identifier: Apache-2.0
#include "layer_norm_kernels.hpp"

#include "elements.hpp"

namespace ops {
namespace {

constexpr int64_t kParts = 64;

DDH_SIMD_INLINE float sum_of_row(const float* x, int64_t width) {
  float parts[kParts] = {};
  int64_t i = 0;
  for (; i + kParts <= width; i += kParts) {
    DDH_SIMD_LOOP
    for (int64_t k = 0; k < kParts; ++k) parts[k] += x[i + k];
  }
  for (int64_t k = 0; i + k < width; ++k) parts[k] += x[i + k];
  return joined<kParts>(parts);
}

DDH_SIMD_INLINE float square(float x) { return x * x; }

DDH_SIMD_INLINE float squares_of_row(const float* x, int64_t width, float mean) {
  float parts[kParts] = {};
  int64_t i = 0;
  for (; i + kParts <= width; i += kParts) {
    DDH_SIMD_LOOP
    for (int64_t k = 0; k < kParts; ++k) parts[k] += square(x[i + k] - mean);
  }
  for (int64_t k = 0; i + k < width; ++k) parts[k] += square(x[i + k] - mean);
  return joined<kParts>(parts);
}

template <class Element>
struct Forward {
  DDH_SIMD_BODY void run(const float* x, const NormScalars& of, int64_t rows, int64_t width, float eps, Element* y,
                         float* mean, float* rstd) {
    const NormScalars s = of;
    const auto n = static_cast<float>(width);
    for (int64_t r = 0; r < rows; ++r, x += width, y += width) {
      const float m = sum_of_row(x, width) / n;
      const float scale = 1.0F / __builtin_sqrtf(squares_of_row(x, width, m) / n + eps);
      mean[r] = m;
      rstd[r] = scale;
      if (s.bias != nullptr) {
        DDH_SIMD_LOOP
        for (int64_t i = 0; i < width; ++i) store(y + i, (x[i] - m) * scale * s.weight[i] + s.bias[i]);
      } else {
        DDH_SIMD_LOOP
        for (int64_t i = 0; i < width; ++i) store(y + i, (x[i] - m) * scale * s.weight[i]);
      }
    }
  }
};

// With g = dy weight and n = (x - mean) rstd: dx = (g - mean of g - n times the mean of g n) rstd.
struct Backward {
  DDH_SIMD_BODY void run(const LayerNormRows& in, const float* weight, const float* add, float* dx) {
    const LayerNormRows s = in;
    const auto n = static_cast<float>(s.width);
    const float *dy = s.dy, *x = s.x;
    for (int64_t r = 0; r < s.rows; ++r, x += s.width, dy += s.width, dx += s.width) {
      const float m = s.mean[r], scale = s.rstd[r];
      float of_g[kParts] = {}, of_gx[kParts] = {};
      int64_t i = 0;
      for (; i + kParts <= s.width; i += kParts) {
        DDH_SIMD_LOOP
        for (int64_t k = 0; k < kParts; ++k) {
          const float g = dy[i + k] * weight[i + k];
          of_g[k] += g;
          of_gx[k] += g * (x[i + k] - m);
        }
      }
      for (int64_t k = 0; i + k < s.width; ++k) {
        const float g = dy[i + k] * weight[i + k];
        of_g[k] += g;
        of_gx[k] += g * (x[i + k] - m);
      }
      const float mean_g = joined<kParts>(of_g) / n, slope = joined<kParts>(of_gx) / n * scale * scale;
      if (add != nullptr) {
        DDH_SIMD_LOOP
        for (int64_t k = 0; k < s.width; ++k)
          dx[k] = (dy[k] * weight[k] - mean_g - (x[k] - m) * slope) * scale + add[k];
        add += s.width;
      } else {
        DDH_SIMD_LOOP
        for (int64_t k = 0; k < s.width; ++k) dx[k] = (dy[k] * weight[k] - mean_g - (x[k] - m) * slope) * scale;
      }
    }
  }
};

}  // namespace

template <class Element>
void layer_norm_rows(const float* x, const NormScalars& of, int64_t rows, int64_t width, float eps, Element* y,
                     float* mean, float* rstd) {
  ddh::Kernel<Forward<Element>>::run(x, of, rows, width, eps, y, mean, rstd);
}

void layer_norm_rows_backward(const LayerNormRows& in, const float* weight, const float* add, float* dx) {
  ddh::Kernel<Backward>::run(in, weight, add, dx);
}

template void layer_norm_rows(const float*, const NormScalars&, int64_t, int64_t, float, float*, float*, float*);
template void layer_norm_rows(const float*, const NormScalars&, int64_t, int64_t, float, uint16_t*, float*, float*);

}  // namespace ops
