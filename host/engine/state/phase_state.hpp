// SPDX-License-Identifier: Apache-2.0
//
// engine/state/phase_state.hpp: changes of optimizer state between phases, with any strategy: resets it, and frees state
// that no later phase needs.
#pragma once

#include "engine/services/optim/step_coordinator.hpp"
#include "engine/state/state_entries.hpp"

namespace ddhost {

// Sets the slots of a program's steps to zero and counts its updates from 1 again. Parameters stay. [collective]
void renew_optimizer_state(const StateSource& source, StepCoordinator& step, int32_t program, Staging& staging);

// Tells the strategy which parameters and slots the programs of Optimizers::set_later use. It may free the other slots, and
// gradients of the other parameters.
// [collective]
void free_past_state(const StateSource& source, const Optimizers& optimizers);

}  // namespace ddhost
