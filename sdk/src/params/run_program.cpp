// SPDX-License-Identifier: Apache-2.0
//
// The programs of a run, read from ddh_attach_args.
#include "ddh/sdk/params/run_program.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

std::vector<int32_t> RunProgram::units(uint32_t n) const {
  std::vector<int32_t> out;
  for (uint32_t m = 0; m < n; ++m) {
    for (const ddh_op& op : ops) out.push_back(op.unit);
  }
  return out;
}

std::ptrdiff_t RunProgram::ready_at(int32_t unit) const {
  const auto at = std::find_if(ops.begin(), ops.end(), [unit](const ddh_op& op) {
    return op.unit == unit && (op.flags & DDH_OP_GRADS_READY) != 0;
  });
  return at == ops.end() ? -1 : at - ops.begin();
}

bool RunProgram::has_twice(int32_t unit) const {
  int32_t position = -1;
  for (const ddh_op& op : ops) {
    if (op.unit != unit) continue;
    if (position >= 0 && op.position != position) return true;
    position = op.position;
  }
  return false;
}

bool gives_gradients(int32_t phase, uint32_t op_flags) {
  return phase == DDH_PHASE_BACKWARD && (op_flags & DDH_OP_INPUT_GRAD_ONLY) == 0;
}

std::vector<RunProgram> run_programs(const ddh_attach_args& args) {
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
