// SPDX-License-Identifier: Apache-2.0
//
// What the sources of OffloadedState share.
#pragma once

#include "ddh/sdk/tier/offloaded_state.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// The data of a space, besides its plan.
struct OffloadedState::Held {
  size_t values = 0;             // tensor of the tier that has the values
  std::vector<size_t> tensors;   // per array of state: of the tier that has the state
  std::vector<Buffer> resident;  // per array of state: what stays on the device
  std::vector<Tier::Handle> fetches;
  void* fetched_to = nullptr;  // the view's memory, while the values are read into `upload`
  void* upload = nullptr;
};

// A tile in memory: values of the space's dtype, and per array of state its elements; float* for every dtype.
struct OffloadedState::Arrays {
  void* values;
  std::vector<float*> state;
};

// The description of an array in a state entry.
struct OffloadedState::Kind {
  int32_t kind, slot, dtype;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
