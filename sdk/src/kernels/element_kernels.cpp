// SPDX-License-Identifier: Apache-2.0
#include "ddh/sdk/kernels/element_kernels.hpp"

#include <string_view>

namespace ddh {
inline namespace v1 DDH_HIDDEN {

ElementRange element_range(const ddh_update_args& args, const ddh_range& range, uint32_t first_slot) {
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
  out.first = slot(first_slot);
  out.second = slot(first_slot + 1);
  out.lowp = shard.lowp == nullptr ? nullptr : static_cast<uint16_t*>(shard.lowp) + at;
  out.numel = range.numel;
  out.lowp_dtype = shard.lowp_dtype;
  out.n_grads = shard.n_grads;
  out.scale = unbounded_scale(*args.block);
  out.limit = clip_value(*args.block);
  for (uint32_t k = 0; k < shard.n_grads; ++k) out.grads[k] = shard.grads[k] + at;
  return out;
}

bool runs_kernels(const Host& host, const char* image) {
  if (image == nullptr || host.kernels == nullptr) return false;
  const char* const format = host.kernels->format(host.h);
  return format != nullptr && std::string_view(format) == "ptx";
}

void launch_kernel(const Host& host, const KernelCall& kernel, ddh_stream* stream) {
  if (kernel.work == 0) return;
  ddh_kernel* found = nullptr;
  call(host.kernels->find, host.h, kernel.image, kernel.name, kernel.arg_bytes, &found);
  const Grid grid(kernel.work);
  call(host.kernels->launch, host.h, found, grid.blocks, grid.threads, kernel.arg, nullptr, 0U, stream);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
