// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/regrouped_params.hpp: parameters that after their forward stay sharded among a smaller group of neighbours, so that
// backward gathers them from near by. Each rank keeps its piece of that second cut until the next update; until then every
// further gather is the small group's.
//
// For transports that copy: where pages are shared a gather moves nothing, and there is nothing to gain.
#pragma once

#include "ddh/sdk/gathered_params.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class RegroupedParams final : public ViewSource {
 public:
  // `place`: of this rank in `group`, and the group's size.
  RegroupedParams(const Host& host, const ModelLayout& layout, ddh_group* group, Replica place)
      : host_(host), group_(group), rank_(static_cast<size_t>(place.index)) {
    for (const FlatSpace& space : layout.spaces) {
      Space& s = spaces_.emplace_back();
      s.flat = space;
      s.flat.name = str(space.name, " among ", place.count);
      s.flat.cut = Cut(space.numel, place.count);
    }
  }

  // What closes from now on stays in the small group, or does not.
  void keep_closed(bool keep) { keeps_ = keep; }
  // Values change: full views come from the whole group again.
  void forget() {
    for (Space& s : spaces_) s.is_kept = false;
  }
  // How often a piece was committed to the small group.
  [[nodiscard]] uint64_t publishes() const { return publishes_; }

  [[nodiscard]] bool keeps_segments() const override { return false; }
  [[nodiscard]] uint64_t resting_bytes() const override {
    uint64_t bytes = 0;
    for (const Space& s : spaces_) bytes += piece_bytes(s);
    return bytes;
  }
  void materialize() override {
    for (Space& s : spaces_) s.window.emplace(host_, group_, s.flat, 0U);
  }

  void open(size_t space, Window* window, void* backing) override {
    Space& s = spaces_[space];
    s.opened_in_group = s.is_kept;
    if (window != nullptr) (s.is_kept ? *s.window : *window).open(backing);
  }
  void close(size_t space, Window* window, void* view) override {
    Space& s = spaces_[space];
    if (keeps_ && !s.is_kept) {
      if (window != nullptr) keep(s, view);
      s.is_kept = true;
      ++publishes_;
    }
    if (window != nullptr) (s.opened_in_group ? *s.window : *window).close();
  }

 private:
  struct Space {
    FlatSpace flat;                // in the second cut
    std::optional<Window> window;  // from materialize on
    bool is_kept = false;          // the window holds the newest values
    bool opened_in_group = false;
  };

  [[nodiscard]] uint64_t piece_bytes(const Space& s) const {
    return s.flat.cut.segment_numel[rank_] * ddh_dtype_bytes(s.flat.dtype);
  }
  void keep(Space& s, const void* view) const {
    s.window->write_begin();
    const auto* const piece =
        static_cast<const char*>(view) + s.flat.cut.segment_offset[rank_] * ddh_dtype_bytes(s.flat.dtype);
    if (piece_bytes(s) > 0)
      call(host_.copy->copy, host_.h, s.window->segment(), DDH_MEM_DEVICE, piece, DDH_MEM_DEVICE, piece_bytes(s),
           nullptr);
    s.window->commit();
  }

  const Host& host_;
  ddh_group* const group_;
  const size_t rank_;
  std::vector<Space> spaces_;
  bool keeps_ = false;
  uint64_t publishes_ = 0;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
