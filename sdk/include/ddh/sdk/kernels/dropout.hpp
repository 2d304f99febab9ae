// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/kernels/dropout.hpp: dropout with counter-based random numbers. The mask of an element depends only on seed,
// step, the micro-batch's index among those of all ranks, position in the program, site within the unit, and element.
// So masks do not depend on the number of ranks or the strategy, and are equal in a recomputed forward and in the
// backward.
#pragma once

#include <cstdint>

#include "ddh/sdk/kernels/counter_rng.hpp"
#include "ddh/sdk/kernels/device_kernel.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

namespace detail {
// The rule of factor(), and the kernels of apply and fill (ddh/sdk/kernels/simd.hpp).
DDH_SIMD_INLINE bool drops(uint64_t key, uint64_t element, uint32_t threshold) {
  return static_cast<uint32_t>(CounterRng::bits_at(key, element) >> 32) < threshold;
}

struct ApplyDropout {
  DDH_SIMD_BODY void run(float* x, uint64_t key, uint64_t first, uint32_t threshold, float scale, uint64_t numel) {
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i) {
      const float kept = x[i] * scale;
      x[i] = drops(key, first + i, threshold) ? 0.0F : kept;
    }
  }
};

struct FillDropout {
  DDH_SIMD_BODY void run(float* factors, uint64_t key, uint64_t first, uint32_t threshold, float scale,
                         uint64_t numel) {
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i) factors[i] = drops(key, first + i, threshold) ? 0.0F : scale;
  }
};
}  // namespace detail

// Dropout::apply on a device with kernels: the bits of the CPU (ddh/sdk/kernels/device_kernel.hpp).
struct DropElements {
  static constexpr const char* kName = "drop_elements";
  float* x;
  uint64_t numel, first, key;
  uint32_t threshold;
  float scale;
  DDH_SIMD_INLINE void operator()(const GridPlace& at) const {
    for (uint64_t i = at.first(); i < numel; i += at.stride()) {
      const float kept = x[i] * scale;
      x[i] = detail::drops(key, first + i, threshold) ? 0.0F : kept;
    }
  }
};

// The image of that kernel, as PTX; nullptr: the SDK was built without nvcc.
const char* dropout_image();

struct DropoutKey {
  uint64_t seed = 0;               // run.seed
  int64_t step = 0;                // ddh_unit_call.step
  int64_t global_micro_batch = 0;  // ddh_unit_call.global_micro_batch
  int64_t position = 0;            // ddh_unit_call.position
  uint64_t site = 0;               // which of the dropouts of a unit
};

class Dropout {
 public:
  // Drops elements with `probability`, in [0, 1), and multiplies the others by 1 / (1 - probability).
  Dropout(double probability, const DropoutKey& key);

  // 0 for a dropped element, else 1 / (1 - probability).
  [[nodiscard]] float factor(uint64_t element) const;
  // x[i] *= factor(first + i). A dropped element becomes 0 even if it was infinite or NaN.
  void apply(float* x, uint64_t first, uint64_t numel) const;
  void fill(float* factors, uint64_t first, uint64_t numel) const;
  // The argument of the kernel that does what apply does.
  [[nodiscard]] DropElements kernel(float* x, uint64_t first, uint64_t numel) const {
    return {x, numel, first, stream_.key(), threshold_, scale_};
  }

  // For code that computes factor() itself: an element is dropped if the upper 32 bits of stream().bits(element) are
  // less than threshold().
  [[nodiscard]] float scale() const { return scale_; }
  [[nodiscard]] uint32_t threshold() const { return threshold_; }
  [[nodiscard]] const CounterRng& stream() const { return stream_; }

 private:
  static CounterRng stream_of(const DropoutKey& key);
  const float scale_;
  const uint32_t threshold_;
  const CounterRng stream_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
