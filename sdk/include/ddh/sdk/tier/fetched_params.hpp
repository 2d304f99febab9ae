// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/fetched_params.hpp: full views of parameters whose segments an OffloadedState has on its tiers. A read of this
// rank's segment to its place in the view begins when a view is opened; the others' segments come when it is acquired.
#pragma once

#include "ddh/sdk/gathered_params.hpp"
#include "ddh/sdk/tier/offloaded_state.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class FetchedParams final : public ViewSource {
 public:
  // `group` shares the spaces; `rank`: this one's place in it. `state` is materialized by its owner, before any view opens.
  FetchedParams(const Host& host, const ModelLayout& layout, ddh_group* group, int32_t rank, OffloadedState& state);

  // How often the ranks gathered a view, or would have in a dry run.
  [[nodiscard]] uint64_t gathers() const { return gathers_; }

  [[nodiscard]] bool keeps_segments() const override { return true; }
  [[nodiscard]] uint64_t resting_bytes() const override { return state_.value_bytes(); }
  void materialize() override {}

  // Room to place the segment on a boundary that a tier can read to, and for what it reads up to the next one.
  [[nodiscard]] uint64_t backing_bytes(uint64_t view_bytes) const override { return view_bytes + 2 * Tier::kAlignment; }
  [[nodiscard]] void* view_in(size_t space, void* backing) const override;
  void open(size_t space, Window*, void* view) override;
  void finish_open(size_t space, void* view) override;
  void close(size_t space, Window*, void*) override;

 private:
  const Host& host_;
  const ModelLayout& layout_;
  ddh_group* const group_;
  const int32_t rank_;
  OffloadedState& state_;
  std::vector<bool> is_reading_;  // per space
  uint64_t gathers_ = 0;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
