// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/prefetch_policy.hpp: which units are gathered ahead of the one in use, and which stay after it, by limits of the
// user's. The order of uses is known, so the policy looks ahead instead of learning.
//
// A scheme's schema takes the options by DDH_PREFETCH_OPTIONS and DeepSpeed's names for them by DDH_PREFETCH_ALIASES.
#pragma once

#include "ddh/sdk/gathered_params.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class PrefetchPolicy {
 public:
  explicit PrefetchPolicy(const SectionOptions& options);

  // For the layout: parameters that stay gathered are in spaces of their own.
  [[nodiscard]] const Grouping& grouping() const { return grouping_; }

  // Opens this unit and the next ones, while there is room. Reads of a source continue while the next ones begin.
  void open(const ddh_unit_use& use, GatheredParams& params) const;

  // Keeps what the next units need and what is used again soon, the nearest first, while there is room beside the very next
  // unit. Closes the rest.
  void close(const ddh_unit_use& use, GatheredParams& params) const;

 private:
  static constexpr uint64_t kNoLimit = UINT64_MAX;

  // Sizes of views are counted in fp32, so that the limits mean the same units in every precision.
  static uint64_t view_bytes(const FlatSpace& space) { return space.persistent ? 0 : space.numel * sizeof(float); }

  static uint64_t unit_bytes(const ModelLayout& layout, const std::vector<size_t>& spaces);
  // Whether the i-th next unit is within the limits of prefetching. `passed`: bytes of the next units up to and with it.
  [[nodiscard]] bool is_ahead(uint32_t i, uint64_t passed) const;
  void open_ahead(const ddh_unit_use& use, GatheredParams& params) const;

  uint32_t prefetch_units_ = 1;
  uint64_t prefetch_bytes_ = kNoLimit, max_live_bytes_ = kNoLimit, reuse_bytes_ = 0;
  Grouping grouping_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh

// clang-format off
#define DDH_PREFETCH_OPTIONS \
  R"("prefetch_units": {"type": ["integer", "null"], "default": null, "minimum": 0, "maximum": 64,)" \
  R"("description": "how many units to gather ahead of the one in use; null: 1, or what prefetch_bytes allows",)" \
  R"("x-affects": "memory"},)" \
  R"("prefetch_bytes": {"type": ["integer", "null"], "default": null, "minimum": 0, "x-unit": "bytes",)" \
  R"("x-affects": "memory",)" \
  R"("description": "as many units ahead as have so much, 4 bytes for an element in every precision; )" \
  R"(null: no limit"},)" \
  R"("persistence_bytes": {"type": "integer", "default": 0, "minimum": 0, "x-unit": "bytes", "x-affects": "memory",)" \
  R"("description": "parameters of at most so much, 4 bytes for an element, stay gathered; 0: none"},)" \
  R"("max_live_bytes": {"type": ["integer", "null"], "default": null, "minimum": 0, "x-unit": "bytes",)" \
  R"("x-affects": "memory",)" \
  R"("description": "gathered parameters, 4 bytes for an element, beyond which none come ahead or stay; )" \
  R"(null: no limit"},)" \
  R"("reuse_bytes": {"type": "integer", "default": 0, "minimum": 0, "x-unit": "bytes", "x-affects": "memory",)" \
  R"("description": "keep a unit that is used again before so much of others, 4 bytes for an element; 0: none"})"

#define DDH_PREFETCH_ALIASES \
  R"("stage3_prefetch_bucket_size": {"key": "prefetch_bytes", "scale": 4},)" \
  R"("stage3_param_persistence_threshold": {"key": "persistence_bytes", "scale": 4},)" \
  R"("stage3_max_live_parameters": {"key": "max_live_bytes", "scale": 4},)" \
  R"("stage3_max_reuse_distance": {"key": "reuse_bytes", "scale": 4})"
// clang-format on
