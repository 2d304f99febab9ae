// SPDX-License-Identifier: Apache-2.0
//
// engine/state/state_entries.hpp: reads and checks a strategy's state entries, finds values that are not finite in
// them, and changes optimizer state between phases, with any strategy: resets it, and frees state that no later phase
// needs.
#pragma once

#include <optional>
#include <vector>

#include "checkpoint/checkpoint_layout.hpp"
#include "engine/calls/instance.hpp"
#include "engine/services/memory/staging.hpp"
#include "engine/services/optim/step_account.hpp"
#include "engine/services/optim/step_coordinator.hpp"

namespace ddhost {

// The state of a strategy. `own`: what agree_strategy_tensors returned; null: not agreed yet.
struct StateSource {
  const Instance& strategy;
  const ddh_strategy_api& table;
  const ddh_model_desc& model;
  const StepCoordinator& step;  // its optimizers say what slots there are
  const std::vector<StrategyTensor>* own = nullptr;
};

// All entries of this rank. Throws ddh::Error, with plugin and call, if one violates the rules of its header.
std::vector<ddh_state_entry> state_entries(const StateSource& source);

// What the strategy lists beside shared parameters and slots, on any rank: its own state, and entries that differ between
// ranks. Throws, on every rank, if ranks disagree about an entry, or if its elements do not occur once. [collective]
std::vector<StrategyTensor> agree_strategy_tensors(const StateSource& source, const Comm& comm);

// Needs `own`, unless the strategy has no such entries.
// `shown` as in CheckpointLayout.
CheckpointLayout layout_of(const StateSource& source, const Optimizers& optimizers, const std::vector<uint8_t>& shown);

// The ranges of each parameter's values in the entries of this rank.
Cover held_params(const ddh_model_desc& model, const std::vector<ddh_state_entry>& entries);

// The first value of an fp32 entry of parameters that is not finite; entries without a pointer are left out.
struct NonfinitePlace {
  int32_t param;
  uint64_t element;
};
std::optional<NonfinitePlace> first_nonfinite(const std::vector<ddh_state_entry>& entries, Staging& staging);

// Sets the slots of a program's steps to zero and counts its updates from 1 again. Parameters stay. [collective]
void renew_optimizer_state(const StateSource& source, StepCoordinator& step, int32_t program, Staging& staging);

// Tells the strategy which parameters and slots the programs of Optimizers::set_later use. It may free the other slots, and
// gradients of the other parameters. [collective]
void free_past_state(const StateSource& source, const Optimizers& optimizers);

}  // namespace ddhost
