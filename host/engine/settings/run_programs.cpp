// SPDX-License-Identifier: Apache-2.0
#include "engine/settings/run_programs.hpp"

#include <algorithm>
#include <string_view>

namespace ddhost {
namespace {

uint32_t position_flags(const ddh_program_desc& program, uint32_t position) {
  return program.position_flags == nullptr ? 0 : program.position_flags[position];
}

}  // namespace

ProgramOps::ProgramOps(const ddh_model_desc& model, int32_t program, uint32_t micro_batches, uint32_t recompute_every)
    : program_(program), micro_batches_(micro_batches) {
  const ddh_program_desc& p = *model.programs[program];
  const bool trains = p.kind == DDH_PROGRAM_TRAIN;
  for (uint32_t i = 0; i < p.n_units; ++i) {
    ddh_op op{sizeof(ddh_op), p.units[i], static_cast<int32_t>(i), DDH_PHASE_EVAL, 0, 0};
    if (trains) {
      op.phase = DDH_PHASE_FORWARD;
      if ((position_flags(p, i) & DDH_POSITION_FORWARD_ONLY) != 0)
        op.flags = DDH_OP_FORWARD_ONLY;
      else if (recompute_every > 0 && (i + 1) % recompute_every == 0)
        op.flags = DDH_OP_RECOMPUTED;
      if ((position_flags(p, i) & DDH_POSITION_INPUT_GRAD_ONLY) != 0) op.flags |= DDH_OP_INPUT_GRAD_ONLY;
    }
    ops_.push_back(op);
  }
  if (trains) {
    add_backward(p);
    trains_.resize(model.n_params);
    for (uint32_t k = 0; k < model.n_params; ++k) {
      const bool frozen = (model.params[k]->attributes & DDH_PARAM_FROZEN) != 0;
      trains_[k] = !frozen && (p.trainable == nullptr || p.trainable[k] != 0) ? 1 : 0;
    }
  }
  for (uint32_t m = 0; m < micro_batches; ++m) {
    for (const ddh_op& op : ops_) units_.push_back(op.unit);
  }
}

void ProgramOps::add_backward(const ddh_program_desc& program) {
  const std::vector<ddh_op> forward = ops_;
  const auto gives_gradients = [&](uint32_t position) {
    return (position_flags(program, position) & (DDH_POSITION_FORWARD_ONLY | DDH_POSITION_INPUT_GRAD_ONLY)) == 0;
  };
  for (uint32_t i = program.n_units; i-- > 0;) {
    ddh_op op = forward[i];
    if ((op.flags & DDH_OP_FORWARD_ONLY) != 0) continue;
    if ((op.flags & DDH_OP_RECOMPUTED) != 0) {
      op.flags &= ~DDH_OP_RECOMPUTED;
      op.phase = DDH_PHASE_RECOMPUTE;
      ops_.push_back(op);
    }
    op.phase = DDH_PHASE_BACKWARD;
    bool is_last = gives_gradients(i);
    for (uint32_t before = 0; before < i; ++before)
      is_last = is_last && !(program.units[before] == op.unit && gives_gradients(before));
    if (is_last) op.flags |= DDH_OP_GRADS_READY;
    ops_.push_back(op);
  }
}

ddh_unit_use ProgramOps::use(uint32_t micro_batch, size_t op_index) const {
  const ddh_op& op = ops_[op_index];
  const size_t after = micro_batch * ops_.size() + op_index + 1;
  ddh_unit_use use{};
  use.struct_size = sizeof use;
  use.program = program_;
  use.unit = op.unit;
  use.position = op.position;
  use.micro_batch = static_cast<int32_t>(micro_batch);
  use.phase = op.phase;
  use.flags = op.flags;
  use.next = units_.data() + after;
  use.n_next = static_cast<uint32_t>(units_.size() - after);
  return use;
}

ddh_run_program ProgramOps::described() const {
  return {sizeof(ddh_run_program),
          program_,
          ops_.data(),
          sizeof(ddh_op),
          static_cast<uint32_t>(ops_.size()),
          micro_batches_,
          trains_.empty() ? nullptr : trains_.data()};
}

RunPrograms::RunPrograms(const ddh_model_desc& model, const std::vector<int32_t>& trained,
                         const std::vector<int32_t>& others, uint32_t grad_accum_steps, uint32_t recompute_every) {
  const auto add = [&](int32_t program, uint32_t micro_batches, uint32_t recompute) {
    const auto [at, is_new] = ops_.try_emplace(program, model, program, micro_batches, recompute);
    if (is_new) described_.push_back(at->second.described());
  };
  for (const int32_t program : trained) add(program, grad_accum_steps, recompute_every);
  for (const int32_t program : others) add(program, 1, 0);
}

int32_t eval_program_of(const ddh_model_desc& model, int32_t program) {
  const char* const name = model.programs[program]->eval_program;
  for (uint32_t g = 0; name != nullptr && g < model.n_programs; ++g) {
    if (std::string_view(model.programs[g]->name) == name) return static_cast<int32_t>(g);
  }
  return -1;
}

std::vector<int32_t> eval_programs_of(const ddh_model_desc& model, const std::vector<int32_t>& programs) {
  std::vector<int32_t> out;
  for (const int32_t program : programs) {
    const int32_t eval = eval_program_of(model, program);
    if (eval >= 0 && std::find(out.begin(), out.end(), eval) == out.end()) out.push_back(eval);
  }
  return out;
}

std::vector<int32_t> update_programs_of(const ddh_model_desc& model) {
  std::vector<int32_t> out;
  for (uint32_t g = 0; g < model.n_programs; ++g)
    if (model.programs[g]->kind == DDH_PROGRAM_UPDATE) out.push_back(static_cast<int32_t>(g));
  return out;
}

}  // namespace ddhost
