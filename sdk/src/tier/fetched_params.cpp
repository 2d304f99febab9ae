// SPDX-License-Identifier: Apache-2.0
//
// Full views of parameters whose segments an OffloadedState has.
#include "ddh/sdk/tier/fetched_params.hpp"

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
  if (view == nullptr) return;
  state_.begin_fetch(space, segment_in(layout_.spaces[space], rank_, view));
  is_reading_[space] = true;
}

void FetchedParams::finish_open(size_t space, void* view) {
  ++gathers_;
  if (view == nullptr) return;
  const Span span(host_, DDH_SPAN_COMM, "fetch");
  is_reading_[space] = false;
  state_.finish_fetch(space);
  gather_segments(host_, group_, layout_.spaces[space], rank_, view);
}

void FetchedParams::close(size_t space, Window*, void*) {
  if (!is_reading_[space]) return;
  is_reading_[space] = false;
  state_.finish_fetch(space);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
