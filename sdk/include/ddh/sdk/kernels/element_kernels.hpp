// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/kernels/element_kernels.hpp: the formula of an element-wise optimizer as a kernel of a device
// (device_kernel.hpp). In a .cu file of the plugin:
//
//   DDH_DEVICE_KERNEL(momentum, ddh::ElementKernel<Momentum::Formula>)
//
// and in the formula the kernel's name: static constexpr const char* kKernel = "momentum".
#pragma once

#include <array>

#include "ddh/sdk/kernels/device_kernel.hpp"
#include "ddh/sdk/kernels/lowp.hpp"
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

// The first pass of an update in two passes (show_range of elementwise.hpp): changes the state, and stores what the formula
// returns, one float or two, at the element's place in the range.
template <class Formula>
struct ShowKernel {
  ElementRange range;
  Formula formula;
  float* shown[2];  // the second is null if the formula returns one

  DDH_SIMD_INLINE void operator()(const GridPlace& at) const {
    for (uint64_t i = at.first(); i < range.numel; i += at.stride()) {
      const float p = range.param[i], g = range.gradient(i);
      float x = range.first[i];
      if constexpr (requires(float& s) { formula(p, g, s, s); }) {
        float y = range.second[i];
        keep(i, formula(p, g, x, y));
        range.second[i] = y;
      } else {
        keep(i, formula(p, g, x));
      }
      range.first[i] = x;
    }
  }

 private:
  DDH_SIMD_INLINE void keep(uint64_t i, float value) const { shown[0][i] = value; }
  template <class Pair>
  DDH_SIMD_INLINE void keep(uint64_t i, const Pair& values) const {
    shown[0][i] = values.first;
    shown[1][i] = values.second;
  }
};

// The second pass (move_piece): p = formula(p, x), or formula(p, x, y), with x and y from the range's state.
template <class Formula>
struct MoveKernel {
  ElementRange range;
  Formula formula;

  DDH_SIMD_INLINE void operator()(const GridPlace& at) const {
    for (uint64_t i = at.first(); i < range.numel; i += at.stride()) {
      if constexpr (requires { formula(0.0F, 0.0F, 0.0F); })
        range.store(i, formula(range.param[i], range.first[i], range.second[i]));
      else
        range.store(i, formula(range.param[i], range.first[i]));
    }
  }
};

// The arguments for one range of a shard. The state is in the slots from `first_slot` on. Error: it has too many sources
// of gradients.
ElementRange element_range(const ddh_update_args& args, const ddh_range& range, uint32_t first_slot = 0);

// Whether the run's device runs the kernels of an image of PTX; `image` may be nullptr.
bool runs_kernels(const Host& host, const char* image);
// A kernel of an image over `work` items.
struct KernelCall {
  const char *image, *name;
  const void* arg;
  uint64_t arg_bytes, work;
};
// Queues it; does nothing if there is no work.
void launch_kernel(const Host& host, const KernelCall& kernel, ddh_stream* stream);

// Launches the kernels of one optimizer. The functions return false where the device runs no kernels, or the formula has
// none: the caller computes on the host.
class ElementKernels {
 public:
  explicit ElementKernels(const char* image) : image_(image) {}

  [[nodiscard]] bool can_run(const Host& host) const { return runs_kernels(host, image_); }

  // Queues the update of a range on the stream of `args`.
  template <class Formula>
  bool use(const Host& host, const ddh_update_args& args, const ddh_range& range, const Formula& formula,
           uint32_t first_slot = 0) const {
    if constexpr (requires { Formula::kKernel; }) {
      if (!can_run(host)) return false;
      const ElementKernel<Formula> kernel{element_range(args, range, first_slot), formula};
      launch_kernel(host, {image_, Formula::kKernel, &kernel, sizeof kernel, range.numel}, args.stream);
      return true;
    }
    return false;
  }
  // The two passes, with values in memory of the device.
  template <class Formula>
  bool show(const Host& host, const ddh_update_args& args, const ddh_range& range, const Formula& formula, float* first,
            float* second = nullptr) const {
    if (!can_run(host)) return false;
    const ShowKernel<Formula> kernel{element_range(args, range), formula, {first, second}};
    launch_kernel(host, {image_, Formula::kKernel, &kernel, sizeof kernel, range.numel}, args.stream);
    return true;
  }
  template <class Formula>
  bool move(const Host& host, const ddh_update_args& args, const ddh_range& range, const Formula& formula, float* x,
            float* y = nullptr) const {
    if (!can_run(host)) return false;
    MoveKernel<Formula> kernel{element_range(args, range), formula};
    kernel.range.first = x;
    kernel.range.second = y;
    launch_kernel(host, {image_, Formula::kKernel, &kernel, sizeof kernel, range.numel}, args.stream);
    return true;
  }

 private:
  const char* const image_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
