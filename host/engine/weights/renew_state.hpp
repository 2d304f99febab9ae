// SPDX-License-Identifier: Apache-2.0
//
// engine/weights/renew_state.hpp: optimizer state that begins anew in the middle of a run, under any strategy.
#pragma once

#include "engine/services/step_coordinator.hpp"
#include "engine/weights/state_entries.hpp"

namespace ddhost {

// The slots that a program's steps use are zero and its updates are counted from 1 again. Values stay. [collective]
void renew_optimizer_state(const StateSource& source, StepCoordinator& step, int32_t program, Staging& staging);

}  // namespace ddhost
