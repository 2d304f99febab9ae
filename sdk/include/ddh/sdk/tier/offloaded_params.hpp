// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/offloaded_params.hpp: gathered parameters whose segments may be on a tier. Source: Rajbhandari et al.,
// ZeRO-Infinity, SC 2021.
#pragma once

#include "ddh/sdk/params/param_store.hpp"
#include "ddh/sdk/tier/fetched_params.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class OffloadedParams final : public PrefetchedParams {
 public:
  // `away`: the storage of the segments, which outlives this object; nullptr: on the device.
  OffloadedParams(const Host& host, const ModelLayout& layout, const ddh_attach_args& args,
                  const PrefetchPolicy& policy, OffloadedState* away)
      : PrefetchedParams(host, layout, args, policy), away_(away) {}

  // nullptr if they are offloaded.
  [[nodiscard]] void* values(size_t space) override {
    return away_ != nullptr ? nullptr : PrefetchedParams::values(space);
  }

 protected:
  [[nodiscard]] std::unique_ptr<ViewSource> make_source() const override {
    if (away_ == nullptr) return nullptr;
    return std::make_unique<FetchedParams>(host_, layout_, args_.group, args_.rank, *away_);
  }
  [[nodiscard]] uint64_t source_calls(const Gathered& dry) const override {
    return static_cast<FetchedParams&>(*dry.source).gathers();
  }

 private:
  OffloadedState* const away_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
