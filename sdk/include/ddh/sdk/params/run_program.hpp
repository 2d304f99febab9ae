// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/params/run_program.hpp: the programs of a run as objects: the order of units and the trained parameters,
// copied from ddh_attach_args.
#pragma once

#include <algorithm>
#include <vector>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

struct RunProgram {
  int32_t program = 0;         // index in the model's programs
  uint32_t micro_batches = 1;  // of a step
  std::vector<ddh_op> ops;     // of one micro-batch
  std::vector<bool> trained;   // per parameter; empty: trains nothing

  [[nodiscard]] bool trains() const { return !trained.empty(); }
  [[nodiscard]] bool trains(int32_t param) const { return trains() && trained[static_cast<size_t>(param)]; }
  // The units of `n` micro-batches, in order of use.
  [[nodiscard]] std::vector<int32_t> units(uint32_t n) const;
  // The index of the op after which the gradients of a unit's own parameters are complete; -1: none.
  [[nodiscard]] std::ptrdiff_t ready_at(int32_t unit) const;
  // Whether a micro-batch uses a unit at two positions.
  [[nodiscard]] bool has_twice(int32_t unit) const;
};

// Whether a use computes gradients of the parameters in its view.
bool gives_gradients(int32_t phase, uint32_t op_flags);

std::vector<RunProgram> run_programs(const ddh_attach_args& args);

}  // namespace DDH_HIDDEN
}  // namespace ddh
