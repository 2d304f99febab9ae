// SPDX-License-Identifier: Apache-2.0
//
// engine/state/state_entries.hpp: reads and checks a strategy's state entries, and finds values that are not finite
// in them.
#pragma once

#include <optional>
#include <vector>

#include "engine/calls/instance.hpp"
#include "engine/services/memory/staging.hpp"
#include "engine/services/optim/step_account.hpp"

namespace ddhost {

// The state of a strategy.
struct StateSource {
  const Instance& strategy;
  const ddh_strategy_api& table;
  const ddh_model_desc& model;
};

// All entries of this rank. Throws ddh::Error, with plugin and call, if one violates the rules of its header.
std::vector<ddh_state_entry> state_entries(const StateSource& source);

// The ranges of each parameter's values in the entries of this rank.
Cover held_params(const ddh_model_desc& model, const std::vector<ddh_state_entry>& entries);

// The first value of an fp32 entry of parameters that is not finite; entries without a pointer are left out.
struct NonfinitePlace {
  int32_t param;
  uint64_t element;
};
std::optional<NonfinitePlace> first_nonfinite(const std::vector<ddh_state_entry>& entries, Staging& staging);

}  // namespace ddhost
