// SPDX-License-Identifier: Apache-2.0
#include "ddh/sdk/element_kernels.hpp"

#include <string_view>

namespace ddh {
inline namespace v1 DDH_HIDDEN {

ElementRange element_range(const ddh_update_args& args, const ddh_range& range) {
  const ddh_optim_shard& shard = *args.shard;
  if (shard.n_grads > ElementRange::kMostSources)
    fail(DDH_UNIMPLEMENTED, "a kernel sums at most ", ElementRange::kMostSources, " sources of a gradient, not ",
         shard.n_grads, "; choose a strategy that sums gradients, such as zero2");
  const uint64_t at = range.flat_offset;
  const auto slot = [&](uint32_t i) -> float* {
    return i < shard.n_slots && shard.slots[i] != nullptr ? static_cast<float*>(shard.slots[i]) + at : nullptr;
  };
  ElementRange out{};
  out.param = shard.master + at;
  out.first = slot(0);
  out.second = slot(1);
  out.lowp = shard.lowp == nullptr ? nullptr : static_cast<uint16_t*>(shard.lowp) + at;
  out.numel = range.numel;
  out.lowp_dtype = shard.lowp_dtype;
  out.n_grads = shard.n_grads;
  out.scale = unbounded_scale(*args.block);
  out.limit = clip_value(*args.block);
  for (uint32_t k = 0; k < shard.n_grads; ++k) out.grads[k] = shard.grads[k] + at;
  return out;
}

bool ElementKernels::can_run(const Host& host) const {
  if (image_ == nullptr || host.kernels == nullptr) return false;
  const char* const format = host.kernels->format(host.h);
  return format != nullptr && std::string_view(format) == "ptx";
}

void ElementKernels::launch(const Host& host, const char* name, const void* arg, uint64_t arg_bytes, uint64_t numel,
                            ddh_stream* stream) const {
  if (numel == 0) return;
  ddh_kernel* kernel = nullptr;
  call(host.kernels->find, host.h, image_, name, arg_bytes, &kernel);
  const Grid grid(numel);
  call(host.kernels->launch, host.h, kernel, grid.blocks, grid.threads, arg, nullptr, 0U, stream);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
