// SPDX-License-Identifier: Apache-2.0
#include "softmax_kernels.hpp"

#include "elements.hpp"
#include "exponential.hpp"
#include "fused_kernel.hpp"

namespace ops {
namespace {

constexpr int64_t kParts = 64;
constexpr int64_t kRun = 4096;  // columns whose sum stays in fp32, so that a long row loses nothing

// A NaN of the row may be lost here. The sum has it.
DDH_SIMD_INLINE float largest_of(const float* x, int64_t width) {
  float parts[kParts];
  for (int64_t k = 0; k < kParts; ++k) parts[k] = x[0];
  int64_t i = 0;
  for (; i + kParts <= width; i += kParts) {
    DDH_SIMD_LOOP
    for (int64_t k = 0; k < kParts; ++k) parts[k] = x[i + k] > parts[k] ? x[i + k] : parts[k];
  }
  for (int64_t k = 0; i + k < width; ++k) parts[k] = x[i + k] > parts[k] ? x[i + k] : parts[k];
  float largest = parts[0];
  for (const float part : parts) largest = part > largest ? part : largest;
  return largest;
}

struct Exponential {
  const float* x;
  float largest;
  DDH_SIMD_INLINE float at(int64_t i) const { return exponential_below(x[i] - largest); }
};

struct LogSumExp {
  DDH_SIMD_BODY void run(const float* x, int64_t rows, int64_t width, float* out) {
    for (int64_t r = 0; r < rows; ++r, x += width) {
      const float largest = largest_of(x, width);
      double sum = 0;
      for (int64_t i = 0; i < width; i += kRun) {
        const int64_t n = width - i < kRun ? width - i : kRun;
        sum += static_cast<double>(row_sum<kParts>(Exponential{x + i, largest}, n));
      }
      out[r] = largest + __builtin_logf(static_cast<float>(sum));
    }
  }
};

struct Softmax {
  DDH_SIMD_BODY void run(const float* x, const float* log_sum_exp, int64_t rows, int64_t width, float factor,
                         float* y) {
    for (int64_t r = 0; r < rows; ++r, x += width, y += width) {
      const float shift = log_sum_exp[r];
      DDH_SIMD_LOOP
      for (int64_t i = 0; i < width; ++i) y[i] = exponential_below(x[i] - shift) * factor;
    }
  }
};

}  // namespace

void log_sum_exp_rows(const float* x, int64_t rows, int64_t width, float* out) {
  FusedKernel<LogSumExp>::run(x, rows, width, out);
}

void softmax_rows(const float* x, const float* log_sum_exp, int64_t rows, int64_t width, float factor, float* y) {
  FusedKernel<Softmax>::run(x, log_sum_exp, rows, width, factor, y);
}

}  // namespace ops
