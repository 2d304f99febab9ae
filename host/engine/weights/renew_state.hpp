// SPDX-License-Identifier: Apache-2.0
//
// engine/weights/renew_state.hpp: resets optimizer state in the middle of a run, with any strategy.
#pragma once

#include "engine/services/step_coordinator.hpp"
#include "engine/weights/state_entries.hpp"

namespace ddhost {

// Sets the slots of a program's steps to zero and counts its updates from 1 again. Parameters stay. [collective]
void renew_optimizer_state(const StateSource& source, StepCoordinator& step, int32_t program, Staging& staging);

}  // namespace ddhost
