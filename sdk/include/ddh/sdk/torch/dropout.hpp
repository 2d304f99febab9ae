// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/torch/dropout.hpp: dropout with counter-based random numbers on tensors; elements are counted in row-major
// order. On a GPU a kernel computes the same numbers, or operators on integers where the SDK was built without nvcc. So a mask
// is that of the CPU, bit for bit.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include "ddh/sdk/kernels/dropout.hpp"
#include "ddh/sdk/torch/device.hpp"
#include "ddh/sdk/torch/pieces.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

namespace detail {

// x ^= x >> bits, as of unsigned numbers
inline void xor_shifted(at::Tensor& x, int64_t bits) {
  x.bitwise_xor_(x.bitwise_right_shift(bits).bitwise_and_((int64_t{1} << (64 - bits)) - 1));
}

// Which of n elements from `first` on are dropped: (n) bool. The steps are those of CounterRng::bits.
inline at::Tensor dropped_elements(const Dropout& dropout, int64_t first, int64_t n, at::Device device) {
  const auto number = [](uint64_t bits) { return static_cast<int64_t>(bits); };
  at::Tensor x = at::arange(first + 1, first + 1 + n, at::TensorOptions(at::kLong).device(device));
  x.mul_(number(kMixStep)).add_(number(dropout.stream().key()));  // modulo 2^64
  xor_shifted(x, 30);
  x.mul_(number(0xBF58476D1CE4E5B9));
  xor_shifted(x, 27);
  x.mul_(number(0x94D049BB133111EB));
  xor_shifted(x, 31);
  return x.bitwise_right_shift_(32).bitwise_and_(int64_t{0xFFFFFFFF}).lt(static_cast<int64_t>(dropout.threshold()));
}

inline void drop_by_operators(const Dropout& dropout, const at::Tensor& x, int64_t first) {
  const KernelPlace& place = kernel_place();
  if (place.drop_elements != nullptr && x.is_cuda() && x.is_contiguous()) {
    const auto numel = static_cast<uint64_t>(x.numel());
    if (numel == 0) return;
    const DropElements args = dropout.kernel(x.mutable_data_ptr<float>(), static_cast<uint64_t>(first), numel);
    const Grid grid(numel);
    return call(place.host->kernels->launch, place.host->h, place.drop_elements, grid.blocks, grid.threads, &args,
                nullptr, uint32_t{0}, place.stream);
  }
  constexpr int64_t kElements = int64_t{1} << 24;  // at once: the counters take 8 bytes each
  const at::Tensor flat = x.view(-1);
  for (int64_t at = 0; at < x.numel(); at += kElements) {
    at::Tensor part = flat.narrow(0, at, std::min(kElements, x.numel() - at));
    const at::Tensor dropped = dropped_elements(dropout, first + at, part.numel(), x.device());
    part.mul_(static_cast<double>(dropout.scale())).masked_fill_(dropped, 0);
  }
}

}  // namespace detail

// In place, on a contiguous fp32 tensor whose first element has the counter `first`. For models that write gradients
// themselves: the backward is the same call.
inline void dropout_(const Dropout& dropout, at::Tensor& x, int64_t first = 0) {
  if (by_operators(x)) return detail::drop_by_operators(dropout, x, first);
  auto* data = x.mutable_data_ptr<float>();
  for_ranges(x.numel(), [&](int64_t at, int64_t n) {
    dropout.apply(data + at, static_cast<uint64_t>(first + at), static_cast<uint64_t>(n));
  });
}

// 0 or 1 / (1 - probability) for each of the elements, fp32 on `like`'s device.
inline at::Tensor dropout_factors(const Dropout& dropout, at::IntArrayRef sizes, const at::Tensor& like) {
  at::Tensor factors = at::empty(sizes, like.options().dtype(at::kFloat));
  if (by_operators(like)) {
    factors.fill_(1);
    detail::drop_by_operators(dropout, factors, 0);
    return factors;
  }
  auto* data = factors.mutable_data_ptr<float>();
  for_ranges(factors.numel(), [&](int64_t at, int64_t n) {
    dropout.fill(data + at, static_cast<uint64_t>(at), static_cast<uint64_t>(n));
  });
  return factors;
}

// For autograd: returns x times a mask of its dtype.
inline at::Tensor dropout(const Dropout& dropout, const at::Tensor& x) {
  return x.mul(dropout_factors(dropout, x.sizes(), x).to(x.options()));
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
