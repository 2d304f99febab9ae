// SPDX-License-Identifier: Apache-2.0
//
// Full views of parameters whose segments an OffloadedState has.
#include "ddh/sdk/tier/fetched_params.hpp"

#include <algorithm>

namespace ddh {
inline namespace v1 DDH_HIDDEN {

FetchedParams::FetchedParams(const Host& host, const ModelLayout& layout, ddh_group* group, int32_t rank,
                             OffloadedState& state)
    : host_(host), layout_(layout), group_(group), rank_(rank), state_(state), is_reading_(layout.spaces.size()) {}

void* FetchedParams::view_in(size_t space, void* backing) const {
  const auto at = reinterpret_cast<uintptr_t>(segment_in(layout_.spaces[space], rank_, backing));
  return static_cast<char*>(backing) + (Tier::round_up(at) - at);
}

void FetchedParams::open(size_t space, Window*, void* view) {
  set_reading(space, true);
  if (view != nullptr) state_.begin_fetch(space, segment_in(layout_.spaces[space], rank_, view));
}

void FetchedParams::finish_open(size_t space, void* view) {
  ++gathers_;
  set_reading(space, false);
  if (view == nullptr) return;
  const Span span(host_, DDH_SPAN_COMM, "fetch");
  state_.finish_fetch(space);
  gather_segments(host_, group_, layout_.spaces[space], rank_, view);
}

void FetchedParams::close(size_t space, Window*, void* view) {
  if (!is_reading_[space]) return;
  set_reading(space, false);
  if (view != nullptr) state_.finish_fetch(space);
}

void FetchedParams::set_reading(size_t space, bool is_reading) {
  is_reading_[space] = is_reading;
  const uint64_t bytes = state_.upload_bytes(space);
  upload_bytes_ = is_reading ? upload_bytes_ + bytes : upload_bytes_ - bytes;
  most_upload_bytes_ = std::max(most_upload_bytes_, upload_bytes_);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
