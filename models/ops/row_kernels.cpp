// SPDX-License-Identifier: Apache-2.0
#include "row_kernels.hpp"

#include <cmath>

#include "elements.hpp"

namespace ops {
namespace {

constexpr int64_t kParts = 16;

struct Square {
  const float* x;
  DDH_SIMD_INLINE float at(int64_t i) const { return x[i] * x[i]; }
};
struct WeightedProduct {
  const float *dy, *weight, *x;
  DDH_SIMD_INLINE float at(int64_t i) const { return dy[i] * weight[i] * x[i]; }
};

struct RmsNorm {
  DDH_SIMD_BODY void run(const float* x, const float* weight, int64_t rows, int64_t width, float eps, float* y,
                         float* rstd) {
    for (int64_t r = 0; r < rows; ++r, x += width, y += width) {
      const float mean = row_sum<kParts>(Square{x}, width) / static_cast<float>(width);
      const float scale = 1.0F / __builtin_sqrtf(mean + eps);
      rstd[r] = scale;
      DDH_SIMD_LOOP
      for (int64_t i = 0; i < width; ++i) y[i] = x[i] * scale * weight[i];
    }
  }
};

struct RmsNormBackward {
  DDH_SIMD_BODY void run(const float* x, const float* weight, const float* rstd, const float* dy, int64_t rows,
                         int64_t width, float* dx) {
    for (int64_t r = 0; r < rows; ++r, x += width, dy += width, dx += width) {
      const float scale = rstd[r];
      const float slope =
          row_sum<kParts>(WeightedProduct{dy, weight, x}, width) / static_cast<float>(width) * scale * scale;
      DDH_SIMD_LOOP
      for (int64_t i = 0; i < width; ++i) dx[i] = (dy[i] * weight[i] - x[i] * slope) * scale;
    }
  }
};

// kSign: 1 turns forward, -1 back.
template <int kSign>
struct Rotate {
  DDH_SIMD_BODY void run(const RotatedRows& shape, const float* x, const float* cos, const float* sin, float* y) {
    const RotatedRows s = shape;
    const int64_t half = s.width / 2;
    for (int64_t n = 0; n < s.samples; ++n) {
      for (int64_t t = 0; t < s.tokens; ++t) {
        const float *c = cos + t * s.width, *d = sin + t * s.width;
        for (int64_t h = 0; h < s.heads; ++h, x += s.width, y += s.width) {
          DDH_SIMD_LOOP
          for (int64_t j = 0; j < half; ++j) {
            const float a = x[j], b = x[j + half];
            if constexpr (kSign > 0) {
              y[j] = a * c[j] + -b * d[j];
              y[j + half] = b * c[j + half] + a * d[j + half];
            } else {
              y[j] = a * c[j] + b * d[j + half];
              y[j + half] = b * c[j + half] + -a * d[j];
            }
          }
        }
      }
    }
  }
};

}  // namespace

void rms_norm_rows(const float* x, const float* weight, int64_t rows, int64_t width, double eps, float* y,
                   float* rstd) {
  ddh::Kernel<RmsNorm>::run(x, weight, rows, width, static_cast<float>(eps), y, rstd);
}

void rms_norm_rows_backward(const float* x, const float* weight, const float* rstd, const float* dy, int64_t rows,
                            int64_t width, float* dx) {
  ddh::Kernel<RmsNormBackward>::run(x, weight, rstd, dy, rows, width, dx);
}

void rotate_rows(const RotatedRows& s, const float* x, const float* cos, const float* sin, float* y) {
  ddh::Kernel<Rotate<1>>::run(s, x, cos, sin, y);
}

void rotate_rows_backward(const RotatedRows& s, const float* dy, const float* cos, const float* sin, float* dx) {
  ddh::Kernel<Rotate<-1>>::run(s, dy, cos, sin, dx);
}

}  // namespace ops
