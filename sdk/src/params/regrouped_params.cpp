// SPDX-License-Identifier: Apache-2.0
//
// Parameters that stay sharded in a smaller group after their forward.
#include "ddh/sdk/params/regrouped_params.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

RegroupedParams::RegroupedParams(const Host& host, const ModelLayout& layout, ddh_group* group, const GroupRanks& ranks)
    : host_(host), group_(group), ranks_(ranks) {
  for (const FlatSpace& space : layout.spaces) {
    Space& s = spaces_.emplace_back();
    s.flat = space;
    s.flat.name = str(space.name, " among ", ranks.size());
    s.flat.cut = Cut(space.numel, static_cast<int32_t>(ranks.size()));
  }
}

void RegroupedParams::forget() {
  for (Space& s : spaces_) s.is_kept = false;
}

uint64_t RegroupedParams::resting_bytes() const {
  uint64_t bytes = 0;
  for (const Space& s : spaces_) bytes += piece_bytes(s);
  return bytes;
}

void RegroupedParams::materialize() {
  for (Space& s : spaces_) s.window.emplace(host_, group_, s.flat, 0U);
}

void RegroupedParams::open(size_t space, Window* window, void* backing) {
  Space& s = spaces_[space];
  s.opened_in_group = s.is_kept;
  if (window != nullptr) (s.is_kept ? *s.window : *window).open(backing);
}

std::optional<SentBytes> RegroupedParams::sent_in_open(size_t space) const {
  const Space& s = spaces_[space];
  if (!s.opened_in_group) return std::nullopt;
  return ranks_.to_each(piece_bytes(s));
}

void RegroupedParams::close(size_t space, Window* window, void* view) {
  Space& s = spaces_[space];
  if (keeps_ && !s.is_kept) {
    if (window != nullptr) keep(s, view);
    s.is_kept = true;
    ++publishes_;
  }
  if (window != nullptr) (s.opened_in_group ? *s.window : *window).close();
}

uint64_t RegroupedParams::piece_bytes(const Space& s) const {
  return s.flat.cut.segment_numel[ranks_.me()] * ddh_dtype_bytes(s.flat.dtype);
}

void RegroupedParams::keep(Space& s, const void* view) const {
  s.window->write_begin();
  const auto* const piece =
      static_cast<const char*>(view) + s.flat.cut.segment_offset[ranks_.me()] * ddh_dtype_bytes(s.flat.dtype);
  if (piece_bytes(s) > 0)
    call(host_.copy->copy, host_.h, s.window->segment(), DDH_MEM_DEVICE, piece, DDH_MEM_DEVICE, piece_bytes(s),
         nullptr);
  s.window->commit();
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
