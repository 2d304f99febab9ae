// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/prefetch_policy.hpp: which units are gathered ahead of the one in use, and which stay after it, by limits of the
// user's. The order of uses is known, so the policy looks ahead instead of learning.
//
// The options that it reads are kPrefetchOptions (ddh/sdk/strategy_options.hpp).
#pragma once

#include "ddh/sdk/gathered_params.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class PrefetchPolicy {
 public:
  explicit PrefetchPolicy(const SectionOptions& options) {
    const auto limit = [&](const char* name) {
      const std::optional<int64_t> given = options.i64_if_given(name);
      return given ? static_cast<uint64_t>(*given) : kNoLimit;
    };
    const std::optional<int64_t> units = options.i64_if_given("prefetch_units");
    prefetch_bytes_ = limit("prefetch_bytes");
    prefetch_units_ = units ? static_cast<uint32_t>(*units) : prefetch_bytes_ == kNoLimit ? 1 : UINT32_MAX;
    max_live_bytes_ = limit("max_live_bytes");
    reuse_bytes_ = static_cast<uint64_t>(options.i64("reuse_bytes"));
    grouping_.persistent_bytes = static_cast<uint64_t>(options.i64("persistence_bytes"));
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
    std::set<size_t> keep;
    uint64_t live = 0, passed = 0;
    size_t n_kept = 0;  // of those that are open
    for (uint32_t i = 0; i < use.n_next; ++i) {
      const std::vector<size_t>& spaces = layout.unit_uses[static_cast<size_t>(use.next[i])];
      const uint64_t before = passed;
      passed += unit_bytes(layout, spaces);
      if (!is_ahead(i, passed) && before >= reuse_bytes_) break;
      if (i > 0 && n_kept == params.n_open()) break;
      for (const size_t s : spaces) {
        if ((i > 0 && !params.is_open(s)) || keep.count(s) > 0) continue;
        live += view_bytes(layout.spaces[s]);
        if (i > 0 && live > max_live_bytes_) return params.close_except(keep);
        keep.insert(s);
        n_kept += params.is_open(s) ? 1 : 0;
      }
    }
    params.close_except(keep);
  }

 private:
  static constexpr uint64_t kNoLimit = UINT64_MAX;

  // Sizes of views are counted in fp32, so that the limits mean the same units in every precision.
  static uint64_t view_bytes(const FlatSpace& space) { return space.persistent ? 0 : space.numel * sizeof(float); }

  static uint64_t unit_bytes(const ModelLayout& layout, const std::vector<size_t>& spaces) {
    uint64_t bytes = 0;
    for (const size_t s : spaces) bytes += view_bytes(layout.spaces[s]);
    return bytes;
  }
  // Whether the i-th next unit is to be there, whatever else is; `passed`: bytes up to and with it.
  [[nodiscard]] bool is_ahead(uint32_t i, uint64_t passed) const {
    return i < prefetch_units_ && passed <= prefetch_bytes_;
  }
  void open_ahead(const ddh_unit_use& use, GatheredParams& params) const {
    const ModelLayout& layout = params.layout();
    uint64_t passed = 0;
    for (uint32_t i = 0; i < use.n_next && params.n_open() < layout.spaces.size(); ++i) {
      const std::vector<size_t>& spaces = layout.unit_uses[static_cast<size_t>(use.next[i])];
      passed += unit_bytes(layout, spaces);
      if (!is_ahead(i, passed)) return;
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
