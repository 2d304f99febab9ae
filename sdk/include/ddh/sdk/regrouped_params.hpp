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
  RegroupedParams(const Host& host, const ModelLayout& layout, ddh_group* group, Replica place);

  // Whether views that close from now on stay sharded in the small group.
  void keep_closed(bool keep) { keeps_ = keep; }
  // Before values change: full views come from the whole group again.
  void forget();
  // How often a piece was committed to the small group.
  [[nodiscard]] uint64_t publishes() const { return publishes_; }

  [[nodiscard]] bool keeps_segments() const override { return false; }
  [[nodiscard]] uint64_t resting_bytes() const override;
  void materialize() override;

  void open(size_t space, Window* window, void* backing) override;
  void close(size_t space, Window* window, void* view) override;

 private:
  struct Space {
    FlatSpace flat;                // in the second cut
    std::optional<Window> window;  // from materialize on
    bool is_kept = false;          // the window holds the newest values
    bool opened_in_group = false;
  };

  [[nodiscard]] uint64_t piece_bytes(const Space& s) const;
  void keep(Space& s, const void* view) const;

  const Host& host_;
  ddh_group* const group_;
  const size_t rank_;
  std::vector<Space> spaces_;
  bool keeps_ = false;
  uint64_t publishes_ = 0;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
