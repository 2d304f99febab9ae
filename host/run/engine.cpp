// SPDX-License-Identifier: Apache-2.0
#include "run/engine.hpp"

#include "ddh/sdk/plugin.hpp"

namespace ddhost {

void Engine::step_begin(int32_t program, int64_t step) {
  const ddh_step_begin_args args{sizeof(ddh_step_begin_args), program, step};
  ddh::call(s_.step_begin, strategy_, &args);
}

namespace {

uint32_t call_flags(uint32_t op_flags) {
  uint32_t flags = 0;
  if ((op_flags & DDH_OP_RECOMPUTED) != 0) flags |= DDH_CALL_RECOMPUTED;
  if ((op_flags & DDH_OP_FORWARD_ONLY) != 0) flags |= DDH_CALL_FORWARD_ONLY;
  if ((op_flags & DDH_OP_INPUT_GRAD_ONLY) != 0) flags |= DDH_CALL_INPUT_GRAD_ONLY;
  return flags;
}

}  // namespace

void Engine::run(const ProgramOps& ops, const MicroBatch& micro, ddh_batch* batch, double seed_scale) {
  for (size_t i = 0; i < ops.ops().size(); ++i) {
    const ddh_unit_use use = ops.use(static_cast<uint32_t>(micro.index), i);
    const bool backward = use.phase == DDH_PHASE_BACKWARD;
    ddh_unit_view view{};
    view.struct_size = sizeof view;
    ddh::call(s_.acquire, strategy_, &use, &view);

    const ddh_unit_call unit_call{sizeof(ddh_unit_call),
                                  use.program,
                                  use.unit,
                                  use.position,
                                  use.micro_batch,
                                  use.phase,
                                  micro.step,
                                  batch,
                                  &view,
                                  seed_scale,
                                  nullptr,
                                  call_flags(use.flags),
                                  0,
                                  micro.global_index};
    {
      const ClockSpan span(clock_, backward ? DDH_SPAN_BACKWARD : DDH_SPAN_FORWARD);
      ddh::call(backward ? m_.backward : m_.forward, model_, &unit_call);
    }
    if ((use.flags & DDH_OP_GRADS_READY) != 0) ddh::call(s_.grads_ready, strategy_, &use);
    ddh::call(s_.release, strategy_, &use);
  }
}

void Engine::metrics(int32_t program, uint64_t micro_batch, double* sums, double* counts) {
  ddh::call(m_.metrics, model_, program, static_cast<int32_t>(micro_batch), sums, counts);
}

void Engine::step() { ddh::call(s_.step, strategy_); }

}  // namespace ddhost
