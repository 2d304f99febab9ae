// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/params/unit_views.hpp: the views of parameters and gradients that a unit gets (ddh_unit_view), made from the
// base pointers of the flat spaces.
#pragma once

#include <functional>
#include <vector>

#include "ddh/sdk/params/layout.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// Builds the views that acquire returns, and records which gradients have been written.
class UnitViews {
 public:
  UnitViews() = default;
  UnitViews(const ddh_model_desc& model, const ModelLayout& layout);

  // Fills `out` for one use of a unit. `data(space)`: base of a flat space's values. `grad(space)`: base of its fp32
  // gradients after FlatSpace::blocks_numel; called only in backward, for trained parameters whose gradients do not come in
  // blocks. The view is valid until the next fill for this unit.
  void fill(const ddh_unit_use& use, uint64_t version, const std::function<void*(size_t space)>& data,
            const std::function<float*(size_t space)>& grad, ddh_unit_view& out);

  // The next use overwrites these gradients instead of adding to them.
  void forget_gradients(const FlatSpace& space);

 private:
  const ddh_model_desc* model_ = nullptr;
  const ModelLayout* layout_ = nullptr;
  std::vector<std::vector<ddh_param_view>> views_;  // per unit
  std::vector<bool> written_;                       // per parameter
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
