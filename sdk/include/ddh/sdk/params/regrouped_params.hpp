// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/params/regrouped_params.hpp: parameters that stay sharded among a smaller group of neighbouring ranks after
// their forward. Each rank keeps its piece of this second sharding until the next update, and until then all further
// gathers are within the small group.
//
// For transports that copy. If pages are shared, a gather copies nothing, and this class saves nothing.
#pragma once

#include "ddh/sdk/params/gathered_params.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class RegroupedParams final : public ViewSource {
 public:
  // `ranks`: of `group`.
  RegroupedParams(const Host& host, const ModelLayout& layout, ddh_group* group, const GroupRanks& ranks);

  // Whether views that are closed from now on stay sharded in the small group.
  void keep_closed(bool keep) { keeps_ = keep; }
  // Called before values change: full views are gathered from the whole group again.
  void forget();
  // The number of commits to the small group.
  [[nodiscard]] uint64_t publishes() const { return publishes_; }

  [[nodiscard]] bool keeps_segments() const override { return false; }
  [[nodiscard]] uint64_t resting_bytes() const override;
  void materialize() override;

  void open(size_t space, Window* window, void* backing) override;
  [[nodiscard]] std::optional<SentBytes> sent_in_open(size_t space) const override;
  void close(size_t space, Window* window, void* view) override;

 private:
  struct Space {
    FlatSpace flat;                // in the second sharding
    std::optional<Window> window;  // from materialize on
    bool is_kept = false;          // the window holds the newest values
    bool opened_in_group = false;
  };

  [[nodiscard]] uint64_t piece_bytes(const Space& s) const;
  void keep(Space& s, const void* view) const;

  const Host& host_;
  ddh_group* const group_;
  const GroupRanks ranks_;
  std::vector<Space> spaces_;
  bool keeps_ = false;
  uint64_t publishes_ = 0;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
