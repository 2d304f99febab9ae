// SPDX-License-Identifier: Apache-2.0
#include "engine/services/shard_copy.hpp"

#include <algorithm>

namespace ddhost {

ShardCopy::ShardCopy(const ddh_optim_shard& shard, const std::vector<ddh_slot_desc>& slots)
    : shard_(shard),
      ranges_(shard.ranges, shard.ranges + shard.n_ranges),
      grads_(shard.grads, shard.grads + shard.n_grads),
      slots_(shard.slots, shard.slots + shard.n_slots) {
  for (const ddh_slot_desc& slot : slots) slot_bytes_.push_back(ddh_dtype_bytes(slot.dtype));
}

ddh_optim_shard ShardCopy::shard() const {
  ddh_optim_shard out = shard_;
  out.ranges = ranges_.data();
  out.grads = grads_.data();
  out.slots = slots_.data();
  return out;
}

ddh::Accesses ShardCopy::accesses() const {
  ddh::Accesses out;
  if (ranges_.empty()) return out;
  uint64_t begin = UINT64_MAX, end = 0;
  for (const ddh_range& r : ranges_) {
    begin = std::min(begin, r.flat_offset);
    end = std::max(end, r.flat_offset + r.numel);
  }
  const auto at = [begin](const void* base, uint64_t element_bytes) {
    return static_cast<const char*>(base) + begin * element_bytes;
  };
  const uint64_t numel = end - begin;
  out.updates(at(shard_.master, sizeof(float)), numel * sizeof(float));
  if (shard_.lowp != nullptr) {
    const uint64_t element_bytes = ddh_dtype_bytes(shard_.lowp_dtype);
    out.writes(at(shard_.lowp, element_bytes), numel * element_bytes);
  }
  for (const float* grad : grads_) out.reads(at(grad, sizeof(float)), numel * sizeof(float));
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i] != nullptr) out.updates(at(slots_[i], slot_bytes_[i]), numel * slot_bytes_[i]);
  }
  return out;
}

}  // namespace ddhost
