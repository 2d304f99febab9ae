// SPDX-License-Identifier: Apache-2.0
//
// engine/samples/train_order.hpp: the program that a step trains, and its samples. A run is a list of phases in order, repeated
// in cycles. Within a phase programs take turns, one per step. Each iterates over its own samples, independent of the others.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/samples/sample_order.hpp"

namespace ddhost {

// The position of a program in its data.
struct EpochPlace {
  int64_t epoch = 0;   // from 1; 0: not known
  int64_t epochs = 0;  // of the run; 0: its length is in steps
  double part = 0;     // of this epoch, above 0 to 1
};

// The progress of a run after a whole number of steps. It determines all further steps.
struct TrainPosition {
  int64_t step = 0;               // done
  int64_t phase = 0;              // of the last step, counted over all cycles from 0
  int64_t phase_step = 0;         // done in that phase
  uint64_t phase_begin = 0;       // where the phase began in the samples of its first turn's program
  std::vector<uint64_t> samples;  // per program of the model: position in its sequence of all epochs
};

struct TrainPhase {
  struct Turn {
    int32_t program;
    uint64_t micro_batch;
  };
  std::vector<Turn> turns;  // one per step, repeated cyclically
  int64_t steps = 0;        // or:
  int64_t epochs = 0;       // of the first turn's program; each program begins a new epoch
};

struct TrainStep {
  int64_t step;        // of the run, from 1
  int64_t phase;       // counted over all cycles from 0
  int64_t phase_step;  // from 1
  int32_t program;
  SampleCut cut;
  SampleSpan span;  // of all ranks
};

class TrainOrder {
 public:
  // `orders`: the sample order of each program that has a turn. `cut`: world and accumulation of all steps. Error: a program
  // has too few samples.
  TrainOrder(std::vector<TrainPhase> phases, int64_t cycles, std::map<int32_t, SampleOrder> orders,
             const SampleCut& cut);

  // Where the run begins: before its first step, or after the step of a checkpoint.
  [[nodiscard]] const TrainPosition& begin() const { return begin_; }
  // Resumes the run from a checkpoint, whose steps may have had another cut. Error: the run ends before it.
  void begin_after(TrainPosition position);
  [[nodiscard]] bool is_at_end(const TrainPosition& at) const { return at.step >= last_step_; }
  // The step after `at`. Advances `at` past it.
  [[nodiscard]] TrainStep advance(TrainPosition& at) const;
  // The samples of one rank in one micro-batch (from 0) of a step.
  void fill(BatchSamples& out, const TrainStep& step, uint64_t micro_batch, uint64_t rank) const {
    orders_.at(step.program).fill(out, step.span, step.cut, micro_batch, rank);
  }

  [[nodiscard]] int64_t last_step() const { return last_step_; }
  // The phases of one cycle.
  [[nodiscard]] const std::vector<TrainPhase>& phases() const { return phases_; }
  [[nodiscard]] int64_t cycles() const { return cycles_; }
  // The index in `phases` of a phase that is counted over all cycles.
  [[nodiscard]] size_t place_of(int64_t phase) const { return static_cast<size_t>(phase) % phases_.size(); }
  // The steps of a phase if all of them have the cut of this run.
  [[nodiscard]] int64_t steps_of(int64_t phase) const { return steps_[place_of(phase)]; }
  [[nodiscard]] bool ends_phase(const TrainStep& step) const { return step.phase_step >= end_of(step.phase); }
  // Whether the step ends an epoch of its program whose number is a multiple of `every`.
  [[nodiscard]] bool ends_epoch(const TrainStep& step, int64_t every) const;
  // The programs that have a turn, in the order of the model.
  [[nodiscard]] std::vector<int32_t> programs() const;
  // Those that have one in this phase or a later one. With cycles all have: more cycles may be added on a resume.
  [[nodiscard]] std::vector<int32_t> programs_from(int64_t phase) const;
  // Samples of an epoch.
  [[nodiscard]] uint64_t epoch_size(int32_t program) const { return orders_.at(program).epoch_size(); }
  // A program for which a rank has a micro-batch without samples, or -1.
  [[nodiscard]] int32_t program_with_empty() const;

 private:
  [[nodiscard]] SampleCut cut_of(const TrainPhase::Turn& turn) const {
    return {turn.micro_batch, cut_.world_size, cut_.grad_accum_steps};
  }
  void require_countable(const TrainPhase& phase) const;
  // The remaining steps of a phase from a position in it.
  [[nodiscard]] int64_t steps_left(const TrainPosition& at) const;
  [[nodiscard]] bool is_beyond_epochs(const TrainPosition& at) const;
  // The number of the last step of a phase. It differs from steps_of if steps before a checkpoint had another cut.
  [[nodiscard]] int64_t end_of(int64_t phase) const { return phase == begin_.phase ? first_end_ : steps_of(phase); }
  void begin_phase(TrainPosition& at) const;

  const std::vector<TrainPhase> phases_;
  const int64_t cycles_;
  const std::map<int32_t, SampleOrder> orders_;
  const SampleCut cut_;         // each turn has its own micro_batch
  std::vector<int64_t> steps_;  // per phase of a cycle
  TrainPosition begin_;
  int64_t first_end_ = 0;  // end_of the phase of begin_
  int64_t last_step_ = 0;
};

}  // namespace ddhost
