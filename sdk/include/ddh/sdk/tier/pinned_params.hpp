// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/pinned_params.hpp: parameters whose segments are stored in pinned memory of the host. A full view is
// made by copying this rank's segment to the device and an all_gather. The update writes the segment in place.
#pragma once

#include "ddh/sdk/params/gathered_params.hpp"
#include "ddh/sdk/tier/memory_tier.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class PinnedParams final : public ViewSource {
 public:
  // The ranks of `group` share the spaces; `rank` is this one's index in it.
  PinnedParams(const Host& host, const ModelLayout& layout, ddh_group* group, int32_t rank);

  [[nodiscard]] bool keeps_segments() const override { return true; }
  [[nodiscard]] uint64_t resting_bytes() const override;
  [[nodiscard]] uint64_t pinned_bytes() const override { return resting_bytes(); }
  void materialize() override;

  // For work on the default stream, while no view of the space is being opened.
  [[nodiscard]] void* segment(size_t space) { return tier_.memory(space); }

  void open(size_t index, Window*, void* view) override;
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
