// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/pinned_params.hpp: parameters whose segments live in the host's pinned memory. A full view is a copy of this
// rank's segment on the device and an all_gather; the update writes the segment where it lies.
#pragma once

#include "ddh/sdk/gathered_params.hpp"
#include "ddh/sdk/tier/memory_tier.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class PinnedParams final : public ViewSource {
 public:
  // `group` shares the spaces; `rank`: this one's place in it.
  PinnedParams(const Host& host, const ModelLayout& layout, ddh_group* group, int32_t rank)
      : host_(host), layout_(layout), group_(group), rank_(rank), tier_(host, Tier::kAlignment) {}

  [[nodiscard]] bool keeps_segments() const override { return true; }
  [[nodiscard]] uint64_t resting_bytes() const override {
    uint64_t bytes = 0;
    for (const FlatSpace& space : layout_.spaces) bytes += space.value_segment_bytes(rank_);
    return bytes;
  }
  void materialize() override {
    for (const FlatSpace& space : layout_.spaces) {
      const uint64_t bytes = space.value_segment_bytes(rank_);
      tier_.add_cut(str("segment of ", space.name), DDH_TAG_PARAM, bytes, std::max(bytes, Tier::kAlignment));
    }
    tier_.reserve();
  }

  // For work on the default stream; no view of the space is being opened.
  [[nodiscard]] void* segment(size_t space) { return tier_.memory(space); }

  void open(size_t index, Window*, void* view) override {
    if (view == nullptr) return;
    const FlatSpace& space = layout_.spaces[index];
    if (space.value_segment_bytes(rank_) > 0) tier_.wait(tier_.begin_read(index, 0, segment_in(space, rank_, view)));
    gather_segments(host_, group_, space, rank_, view);
  }
  void close(size_t, Window*, void*) override {}

 private:
  const Host& host_;
  const ModelLayout& layout_;
  ddh_group* const group_;
  const int32_t rank_;
  MemoryTier tier_;  // a tensor for each space, of one tile
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
