// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/train_setup.hpp"

#include <cmath>

#include "base/step_extras.hpp"
#include "engine/services/optim/step_coordinator.hpp"

namespace ddhost {

bool stop_wanted(const TrainSetup& setup) {
  return setup.services.comm->any(setup.services.seat.record.stop_requested(), "stop");
}

void OpRunner::step_begin(int32_t program, int64_t step, bool is_last) {
  const ddh_step_begin_args args{sizeof(ddh_step_begin_args), program, step, is_last ? DDH_STEP_LAST : 0U, 0};
  const PartSpan span(clock_, StepPart::strategy, "step_begin");
  strategy_.call(PluginCall::kStepBegin, strategy_table_.step_begin, &args);
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

void OpRunner::run(const ProgramOps& ops, const MicroBatch& micro, ddh_batch* batch, double seed_scale) {
  for (size_t i = 0; i < ops.ops().size(); ++i) {
    const ddh_unit_use use = ops.use(static_cast<uint32_t>(micro.index), i);
    const UnitName unit{use.unit, desc_.units[use.unit]->name};
    const PluginCaller &strategy = strategy_.caller(), &model = model_.caller();
    const bool backward = use.phase == DDH_PHASE_BACKWARD;
    ddh_unit_view view{};
    view.struct_size = sizeof view;
    {
      const PartSpan span(clock_, StepPart::strategy, "acquire", unit.name);
      strategy.on_unit(PluginCall::kAcquire, unit, strategy_table_.acquire, strategy_.get(), &use, &view);
    }
    if (step_includes(StepExtra::checks)) views_.check(strategy, use, ops.trains(), view);
    if (backward) require_next_block(unit, view);

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
      const ClockSpan span(clock_, backward ? DDH_SPAN_BACKWARD : DDH_SPAN_FORWARD,
                           SpanTopic(UnitWork{use.program, use.position, use.phase}));
      model.on_unit(backward ? PluginCall::kBackward : PluginCall::kForward, unit,
                    backward ? model_table_.backward : model_table_.forward, model_.get(), &unit_call);
    }
    if (backward) run_blocks(use, unit_call, unit);
    if ((use.flags & DDH_OP_GRADS_READY) != 0) {
      const PartSpan span(clock_, StepPart::strategy, "grads_ready", unit.name);
      strategy.on_unit(PluginCall::kGradsReady, unit, strategy_table_.grads_ready, strategy_.get(), &use);
    }
    const PartSpan span(clock_, StepPart::strategy, "release", unit.name);
    strategy.on_unit(PluginCall::kRelease, unit, strategy_table_.release, strategy_.get(), &use);
  }
}

void OpRunner::require_next_block(const UnitName& unit, const ddh_unit_view& view) const {
  if (DDH_CAN(&strategy_table_, ddh_strategy_api, next_block)) return;
  const PluginCaller& strategy = strategy_.caller();
  if (!BlockChecks(desc_, strategy, unit, view).has_none())
    strategy.blame(PluginCall::kAcquire, unit, "gave a view with DDH_GRAD_LATER, but has no next_block");
}

void OpRunner::run_blocks(const ddh_unit_use& use, const ddh_unit_call& unit_call, const UnitName& unit) {
  const PluginCaller &strategy = strategy_.caller(), &model = model_.caller();
  BlockChecks checks(desc_, strategy, unit, *unit_call.view);
  if (checks.has_none()) return;
  for (;;) {
    ddh_grad_block block{};
    block.struct_size = sizeof block;
    {
      const PartSpan span(clock_, StepPart::strategy, "next_block", unit.name);
      strategy.on_unit(PluginCall::kNextBlock, unit, strategy_table_.next_block, strategy_.get(), &use, &block);
    }
    if (block.param == -1) return checks.require_all();
    checks.take(block);
    const ClockSpan span(clock_, DDH_SPAN_BACKWARD,
                         SpanTopic(UnitWork{use.program, use.position, use.phase}).goes_on());
    model.on_unit(PluginCall::kGradientBlock, unit, model_table_.gradient_block, model_.get(), &unit_call, &block);
  }
}

void OpRunner::metrics(int32_t program, uint64_t micro_batch, double* sums, double* counts) {
  const PartSpan span(clock_, StepPart::forward, "metrics");
  model_.call(PluginCall::kMetrics, model_table_.metrics, program, static_cast<int32_t>(micro_batch), sums, counts);
  const ddh_program_desc& described = *desc_.programs[program];
  for (uint32_t i = 0; i < described.n_metrics; ++i) {
    if (!std::isfinite(counts[i]) || counts[i] < 0)
      model_.caller().blame(PluginCall::kMetrics, {}, "gave metric ", i, " (", described.metrics[i], ") the count ",
                            counts[i], ", which is not a valid number of samples");
  }
}

void OpRunner::settle() {
  if (DDH_CAN(&strategy_table_, ddh_strategy_api, settle)) strategy_.call(PluginCall::kSettle, strategy_table_.settle);
}

void OpRunner::step() {
  {
    const PartSpan span(clock_, StepPart::strategy, "step");
    strategy_.call(PluginCall::kStep, strategy_table_.step);
  }
  if (step_includes(StepExtra::checks)) checks_.after_step();
}

}  // namespace ddhost
