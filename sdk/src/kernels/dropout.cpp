// SPDX-License-Identifier: Apache-2.0
//
// Counter-based dropout over arrays.
#include "ddh/sdk/kernels/dropout.hpp"

#ifdef DDH_HAVE_PTX
extern "C" const char dropout_kernels_ptx[];
#endif

namespace ddh {
inline namespace v1 DDH_HIDDEN {

const char* dropout_image() {
#ifdef DDH_HAVE_PTX
  return dropout_kernels_ptx;
#else
  return nullptr;
#endif
}

Dropout::Dropout(double probability, const DropoutKey& key)
    : scale_(static_cast<float>(1 / (1 - probability))),
      threshold_(static_cast<uint32_t>(probability * 0x1p32)),
      stream_(stream_of(key)) {}

float Dropout::factor(uint64_t element) const {
  return detail::drops(stream_.key(), element, threshold_) ? 0.0F : scale_;
}

void Dropout::apply(float* x, uint64_t first, uint64_t numel) const {
  Kernel<detail::ApplyDropout>::run(x, stream_.key(), first, threshold_, scale_, numel);
}

void Dropout::fill(float* factors, uint64_t first, uint64_t numel) const {
  Kernel<detail::FillDropout>::run(factors, stream_.key(), first, threshold_, scale_, numel);
}

CounterRng Dropout::stream_of(const DropoutKey& key) {
  uint64_t stream = key.seed;
  for (const uint64_t part : {static_cast<uint64_t>(key.step), static_cast<uint64_t>(key.global_micro_batch),
                              static_cast<uint64_t>(key.position), key.site})
    stream = CounterRng(stream, "dropout").bits(part);
  return {stream, "dropout"};
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
