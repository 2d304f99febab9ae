// SPDX-License-Identifier: Apache-2.0
//
// Full views of parameters whose segments are in pinned memory.
#include "ddh/sdk/tier/pinned_params.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

PinnedParams::PinnedParams(const Host& host, const ModelLayout& layout, ddh_group* group, int32_t rank)
    : host_(host), layout_(layout), group_(group), rank_(rank), tier_(host, Tier::kAlignment) {}

uint64_t PinnedParams::resting_bytes() const {
  uint64_t bytes = 0;
  for (const FlatSpace& space : layout_.spaces) bytes += space.value_segment_bytes(rank_);
  return bytes;
}

void PinnedParams::materialize() {
  for (const FlatSpace& space : layout_.spaces) {
    const uint64_t bytes = space.value_segment_bytes(rank_);
    tier_.add_cut(str("segment of ", space.name), DDH_TAG_PARAM, bytes, std::max(bytes, Tier::kAlignment));
  }
  tier_.reserve();
}

void PinnedParams::open(size_t index, Window*, void* view) {
  if (view == nullptr) return;
  const FlatSpace& space = layout_.spaces[index];
  if (space.value_segment_bytes(rank_) > 0) tier_.wait(tier_.begin_read(index, 0, segment_in(space, rank_, view)));
  gather_segments(host_, group_, space, rank_, view);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
