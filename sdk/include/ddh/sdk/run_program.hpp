// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/run_program.hpp: the programs of a run as objects: the order of units and what each program trains, as the host
// gave them in ddh_attach_args. Nothing of it is derived here.
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
  [[nodiscard]] std::vector<int32_t> units(uint32_t n) const {
    std::vector<int32_t> out;
    for (uint32_t m = 0; m < n; ++m) {
      for (const ddh_op& op : ops) out.push_back(op.unit);
    }
    return out;
  }
  // The op after which the gradients of a unit's own parameters are complete; -1: none.
  [[nodiscard]] std::ptrdiff_t ready_at(int32_t unit) const {
    const auto at = std::find_if(ops.begin(), ops.end(), [unit](const ddh_op& op) {
      return op.unit == unit && (op.flags & DDH_OP_GRADS_READY) != 0;
    });
    return at == ops.end() ? -1 : at - ops.begin();
  }
  // Whether a micro-batch uses a unit at two positions.
  [[nodiscard]] bool has_twice(int32_t unit) const {
    int32_t position = -1;
    for (const ddh_op& op : ops) {
      if (op.unit != unit) continue;
      if (position >= 0 && op.position != position) return true;
      position = op.position;
    }
    return false;
  }
};

// A use gives gradients to the parameters of its view.
inline bool gives_gradients(int32_t phase, uint32_t op_flags) {
  return phase == DDH_PHASE_BACKWARD && (op_flags & DDH_OP_INPUT_GRAD_ONLY) == 0;
}

inline std::vector<RunProgram> run_programs(const ddh_attach_args& args) {
  std::vector<RunProgram> out;
  for (uint32_t i = 0; i < args.n_programs; ++i) {
    const ddh_run_program described = copy_of(*ddh_attach_program(&args, i));
    RunProgram& p = out.emplace_back();
    p.program = described.program;
    p.micro_batches = described.micro_batches;
    for (uint32_t k = 0; k < described.n_ops; ++k) p.ops.push_back(copy_of(*ddh_program_op(&described, k)));
    if (described.trains != nullptr) p.trained.assign(described.trains, described.trains + args.model->n_params);
  }
  return out;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
