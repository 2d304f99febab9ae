// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/train_setup.hpp: data shared by training steps, evaluations, update programs and generation.
#pragma once

#include <vector>

#include "base/clock.hpp"
#include "ddh/ddh.h"
#include "engine/calls/instance.hpp"
#include "engine/checks/block_checks.hpp"
#include "engine/checks/step_checks.hpp"
#include "engine/samples/loader.hpp"
#include "engine/services/tables/interfaces.hpp"
#include "engine/settings/course.hpp"
#include "engine/settings/run_programs.hpp"
#include "engine/state/shown_weights.hpp"
#include "engine/state/state_entries.hpp"

namespace ddhost {

// Identifies a micro-batch: step, index on this rank, and index among those of all ranks.
struct MicroBatch {
  int64_t step;
  uint64_t index;
  int64_t global_index;
};

// The calls between strategy and model for one op: acquire, compute, blocks of gradients, grads_ready, release.
class OpRunner {
 public:
  // All outlive this object. `views` and `checks` check the strategy's results and calls.
  OpRunner(const Instance& strategy, const ddh_strategy_api& strategy_table, const Instance& model,
           const ddh_model_api& model_table, const ddh_model_desc& model_desc, const ViewCheck& views,
           StepChecks& checks, Clock& clock)
      : strategy_(strategy),
        strategy_table_(strategy_table),
        model_(model),
        model_table_(model_table),
        desc_(model_desc),
        views_(views),
        checks_(checks),
        clock_(clock) {}

  void step_begin(int32_t program, int64_t step, bool is_last);
  // All ops of one micro-batch.
  void run(const ProgramOps& ops, const MicroBatch& micro, const Batch& batch, double seed_scale) {
    run(ops, micro, batch.get(), seed_scale);
  }
  void run(const ProgramOps& ops, const MicroBatch& micro, ddh_batch* batch, double seed_scale);
  // Writes sums and counts of a micro-batch into arrays of the program's n_metrics.
  void metrics(int32_t program, uint64_t micro_batch, double* sums, double* counts);
  void discard(uint64_t micro_batch) {
    const PartSpan span(clock_, StepPart::memory, "free of a micro-batch");
    const PluginCaller::Entered entered = model_.caller().enter(PluginCall::kDiscard);
    model_table_.discard(model_.get(), static_cast<int32_t>(micro_batch));
  }
  void step();
  // After the last step, where the strategy has more to do then.
  void settle();

 private:
  // Before a backward: a strategy without next_block must not leave gradients for later.
  void require_next_block(const UnitName& unit, const ddh_unit_view& view) const;
  // The gradients of a backward that its view showed as DDH_GRAD_LATER.
  void run_blocks(const ddh_unit_use& use, const ddh_unit_call& unit_call, const UnitName& unit);

  const Instance& strategy_;
  const ddh_strategy_api& strategy_table_;
  const Instance& model_;
  const ddh_model_api& model_table_;
  const ddh_model_desc& desc_;
  const ViewCheck& views_;
  StepChecks& checks_;
  Clock& clock_;
};

// A rank that is ready to train.
struct TrainSetup {
  RankServices& services;
  OpRunner& runner;
  const ddh_model_desc& model;
  ddh_inst* model_inst;
  const ddh_model_api& model_table;
  BatchCallers model_callers;
  const RunPrograms& programs;
  StateSource state;
  ShownWeights* shown;  // of a training, else null
  const std::vector<PhaseSpec>& phases;
  std::vector<int32_t> train_programs;  // in turn, or those of all phases
  int32_t eval_program;                 // of the last phase's first program, which samples; -1: none
};

// Whether a rank was asked to stop; the same on every rank. [collective]
bool stop_wanted(const TrainSetup& setup);

}  // namespace ddhost
