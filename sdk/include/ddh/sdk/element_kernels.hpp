// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/element_kernels.hpp: the formula of an element-wise optimizer as a kernel of a device (device_kernel.hpp). In
// a .cu file of the plugin:
//
//   DDH_DEVICE_KERNEL(momentum, ddh::ElementKernel<Momentum::Formula>)
//
// and in the formula the kernel's name: static constexpr const char* kKernel = "momentum".
#pragma once

#include <array>

#include "ddh/sdk/device_kernel.hpp"
#include "ddh/sdk/lowp.hpp"
#include "ddh/sdk/optimizer.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// Applies a formula to the elements of a range; everything but the formula.
struct ElementRange {
  static constexpr uint32_t kMostSources = 64;
  float* param;
  float* first;  // state; null if the formula has fewer
  float* second;
  uint16_t* lowp;  // null: no copy
  uint64_t numel;
  int32_t lowp_dtype;
  uint32_t n_grads;
  float scale;
  float limit;  // of a scaled gradient's magnitude; 0: none
  const float* grads[kMostSources];

  // The sum of the sources in order, scaled and bounded as for_each_piece does it.
  [[nodiscard]] DDH_SIMD_INLINE float gradient(uint64_t i) const {
    float sum = grads[0][i];
    for (uint32_t k = 1; k < n_grads; ++k) sum = sum + grads[k][i];
    const float g = sum * scale;
    if (limit <= 0) return g;
    return g > limit ? limit : g < -limit ? -limit : g;
  }
  DDH_SIMD_INLINE void store(uint64_t i, float value) const {
    param[i] = value;
    if (lowp != nullptr) lowp[i] = lowp_dtype == DDH_BF16 ? Bf16::from_f32(value) : F16::from_f32(value);
  }
};

template <class Formula>
struct ElementKernel {
  ElementRange range;
  Formula formula;

  DDH_SIMD_INLINE void operator()(const GridPlace& at) const {
    for (uint64_t i = at.first(); i < range.numel; i += at.stride()) range.store(i, updated(range.gradient(i), i));
  }

 private:
  [[nodiscard]] DDH_SIMD_INLINE float updated(float g, uint64_t i) const {
    const float p = range.param[i];
    if constexpr (requires(float& x) { formula(p, g, x, x); }) {
      float x = range.first[i], y = range.second[i];
      const float result = formula(p, g, x, y);
      range.first[i] = x;
      range.second[i] = y;
      return result;
    } else if constexpr (requires(float& x) { formula(p, g, x); }) {
      float x = range.first[i];
      const float result = formula(p, g, x);
      range.first[i] = x;
      return result;
    } else {
      return formula(p, g);
    }
  }
};

// The arguments for one range of a shard. Error: it has too many sources of gradients.
ElementRange element_range(const ddh_update_args& args, const ddh_range& range);

// Launches the kernels of one optimizer.
class ElementKernels {
 public:
  explicit ElementKernels(const char* image) : image_(image) {}

  // Queues the update of a range on the stream of `args`, where the device runs kernels and the formula has one.
  // Returns false if it does not: the caller computes on the host.
  template <class Formula>
  bool use(const Host& host, const ddh_update_args& args, const ddh_range& range, const Formula& formula) const {
    if constexpr (requires { Formula::kKernel; }) {
      if (!can_run(host)) return false;
      const ElementKernel<Formula> kernel{element_range(args, range), formula};
      launch(host, Formula::kKernel, &kernel, sizeof kernel, range.numel, args.stream);
      return true;
    }
    return false;
  }

 private:
  [[nodiscard]] bool can_run(const Host& host) const;
  void launch(const Host& host, const char* name, const void* arg, uint64_t arg_bytes, uint64_t numel,
              ddh_stream* stream) const;
  const char* const image_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
