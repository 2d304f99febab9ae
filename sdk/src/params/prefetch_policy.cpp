// SPDX-License-Identifier: Apache-2.0
//
// Which units are gathered ahead and which stay.
#include "ddh/sdk/params/prefetch_policy.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

PrefetchPolicy::PrefetchPolicy(const SectionOptions& options) {
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

void PrefetchPolicy::open(const ddh_unit_use& use, GatheredParams& params) const {
  params.open(params.layout().unit_uses[static_cast<size_t>(use.unit)]);
  open_ahead(use, params);
  params.acquire(params.layout().unit_uses[static_cast<size_t>(use.unit)]);
}

void PrefetchPolicy::close(const ddh_unit_use& use, GatheredParams& params) const {
  const ModelLayout& layout = params.layout();
  params.release(layout.unit_uses[static_cast<size_t>(use.unit)]);
  uint64_t live = 0, passed = 0;
  size_t n_kept = 0;  // of those that are open
  for (uint32_t i = 0; i < use.n_next; ++i) {
    const std::vector<size_t>& spaces = layout.unit_uses[static_cast<size_t>(use.next[i])];
    const uint64_t before = passed;
    passed += unit_bytes(layout, spaces);
    if (!is_ahead(i, passed) && before >= reuse_bytes_) break;
    if (i > 0 && n_kept == params.n_open()) break;
    for (const size_t s : spaces) {
      if ((i > 0 && !params.is_open(s)) || params.is_kept(s)) continue;
      live += view_bytes(layout.spaces[s]);
      if (i > 0 && live > max_live_bytes_) return params.close_others();
      params.keep(s);
      n_kept += params.is_open(s) ? 1 : 0;
    }
  }
  params.close_others();
}

uint64_t PrefetchPolicy::unit_bytes(const ModelLayout& layout, const std::vector<size_t>& spaces) {
  uint64_t bytes = 0;
  for (const size_t s : spaces) bytes += view_bytes(layout.spaces[s]);
  return bytes;
}

bool PrefetchPolicy::is_ahead(uint32_t i, uint64_t passed) const {
  return i < prefetch_units_ && passed <= prefetch_bytes_;
}

void PrefetchPolicy::open_ahead(const ddh_unit_use& use, GatheredParams& params) const {
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

}  // namespace DDH_HIDDEN
}  // namespace ddh
