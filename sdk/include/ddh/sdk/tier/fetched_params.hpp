// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/fetched_params.hpp: full views of parameters whose segments an OffloadedState stores on its tiers.
// Opening a view begins to read this rank's segment; acquiring it gathers the other segments.
#pragma once

#include "ddh/sdk/params/gathered_params.hpp"
#include "ddh/sdk/tier/offloaded_state.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class FetchedParams final : public ViewSource {
 public:
  // The ranks of `group` share the spaces; `rank` is this one's index in it. The owner of `state` materializes it
  // before any view is opened.
  FetchedParams(const Host& host, const ModelLayout& layout, ddh_group* group, int32_t rank, OffloadedState& state);

  // The number of gathers, also in a dry run.
  [[nodiscard]] uint64_t gathers() const { return gathers_; }

  [[nodiscard]] bool keeps_segments() const override { return true; }
  // With the buffers that a dry run has used at a time.
  [[nodiscard]] uint64_t resting_bytes() const override { return state_.value_bytes() + most_upload_bytes_; }
  [[nodiscard]] uint64_t pinned_bytes() const override { return resting_bytes(); }
  void materialize() override {}

  // Extra memory to align the segment for a tier's reads, and to round its size up.
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
  void set_reading(size_t space, bool is_reading);

  std::vector<bool> is_reading_;  // per space
  uint64_t gathers_ = 0, upload_bytes_ = 0, most_upload_bytes_ = 0;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
