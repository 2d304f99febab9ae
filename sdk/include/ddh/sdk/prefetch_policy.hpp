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
  explicit PrefetchPolicy(const Host& host) {
    const auto limit = [&](const char* key) {
      const std::optional<int64_t> given = host.i64_if_given(key);
      return given ? static_cast<uint64_t>(*given) : kNoLimit;
    };
    const std::optional<int64_t> units = host.i64_if_given("strategy.prefetch_units");
    prefetch_bytes_ = limit("strategy.prefetch_bytes");
    prefetch_units_ = units ? static_cast<uint32_t>(*units) : prefetch_bytes_ == kNoLimit ? 1 : UINT32_MAX;
    max_live_bytes_ = limit("strategy.max_live_bytes");
    reuse_bytes_ = static_cast<uint64_t>(host.i64("strategy.reuse_bytes"));
    grouping_.persistent_bytes = static_cast<uint64_t>(host.i64("strategy.persistence_bytes"));
  }

  // For the layout: what stays gathered lies apart.
  [[nodiscard]] const Grouping& grouping() const { return grouping_; }

  // This unit and the next ones, while there is room. A source that reads goes on while the next ones begin.
  void open(const ddh_unit_use& use, GatheredParams& params) const {
    params.open(params.layout().unit_uses[static_cast<size_t>(use.unit)]);
    open_ahead(use, params);
    params.acquire(params.layout().unit_uses[static_cast<size_t>(use.unit)]);
  }

  // Keeps what the next ones need and what is used again soon, the nearest first, while there is room beside the very
  // next one; drops the rest.
  void close(const ddh_unit_use& use, GatheredParams& params) const {
    const ModelLayout& layout = params.layout();
    params.release(layout.unit_uses[static_cast<size_t>(use.unit)]);
    const uint32_t ahead = units_ahead(use, layout);
    std::set<size_t> keep;
    uint64_t live = 0, passed = 0;
    for (uint32_t i = 0; i < use.n_next && (i < ahead || passed < reuse_bytes_); ++i) {
      for (const size_t s : layout.unit_uses[static_cast<size_t>(use.next[i])]) {
        const uint64_t bytes = view_bytes(layout.spaces[s]);
        passed += bytes;
        if ((i > 0 && !params.is_open(s)) || keep.count(s) > 0) continue;
        live += bytes;
        if (i > 0 && live > max_live_bytes_) return params.close_except(keep);
        keep.insert(s);
      }
    }
    params.close_except(keep);
  }

 private:
  static constexpr uint64_t kNoLimit = UINT64_MAX;

  // Sizes of views are counted in fp32, so that the limits mean the same units in every precision.
  static uint64_t view_bytes(const FlatSpace& space) { return space.persistent ? 0 : space.numel * sizeof(float); }

  // How many of the next units are to be there, whatever else is.
  [[nodiscard]] uint32_t units_ahead(const ddh_unit_use& use, const ModelLayout& layout) const {
    uint64_t bytes = 0;
    uint32_t n = 0;
    for (; n < std::min(prefetch_units_, use.n_next); ++n) {
      for (const size_t s : layout.unit_uses[static_cast<size_t>(use.next[n])]) bytes += view_bytes(layout.spaces[s]);
      if (bytes > prefetch_bytes_) break;
    }
    return n;
  }
  void open_ahead(const ddh_unit_use& use, GatheredParams& params) const {
    const ModelLayout& layout = params.layout();
    for (uint32_t i = 0, ahead = units_ahead(use, layout); i < ahead; ++i) {
      const std::vector<size_t>& spaces = layout.unit_uses[static_cast<size_t>(use.next[i])];
      uint64_t bytes = params.open_numel() * sizeof(float);
      for (const size_t s : spaces) bytes += params.is_open(s) ? 0 : view_bytes(layout.spaces[s]);
      if (bytes > max_live_bytes_) return;
      params.open(spaces);
    }
  }

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
