// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/params/prefetch_policy.hpp: decides which units are prefetched and which stay gathered after their use,
// within the user's limits. The order of uses is known in advance, so the policy needs no tracing.
//
// The options that it reads are kPrefetchOptions (ddh/sdk/strategy_options.hpp).
#pragma once

#include "ddh/sdk/params/gathered_params.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class PrefetchPolicy {
 public:
  explicit PrefetchPolicy(const SectionOptions& options);

  // For the layout: parameters that stay gathered have their own spaces.
  [[nodiscard]] const Grouping& grouping() const { return grouping_; }

  // Opens this unit and the next ones within the limits. If a ViewSource reads the views, the reads of
  // all these units overlap.
  void open(const ddh_unit_use& use, GatheredParams& params) const;

  // Keeps spaces that the next units need or that are used again soon, nearest first, within the limits and leaving
  // room for the next unit. Closes the rest.
  void close(const ddh_unit_use& use, GatheredParams& params) const;

 private:
  static constexpr uint64_t kNoLimit = UINT64_MAX;

  // Sizes of views are counted in fp32, so that the limits mean the same units in every precision.
  static uint64_t view_bytes(const FlatSpace& space) { return space.persistent ? 0 : space.numel * sizeof(float); }

  static uint64_t unit_bytes(const ModelLayout& layout, const std::vector<size_t>& spaces);
  // Whether the i-th next unit is within the limits of prefetching. `passed`: bytes of the next units including it.
  [[nodiscard]] bool is_ahead(uint32_t i, uint64_t passed) const;
  void open_ahead(const ddh_unit_use& use, GatheredParams& params) const;

  uint32_t prefetch_units_ = 1;
  uint64_t prefetch_bytes_ = kNoLimit, max_live_bytes_ = kNoLimit, reuse_bytes_ = 0;
  Grouping grouping_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
