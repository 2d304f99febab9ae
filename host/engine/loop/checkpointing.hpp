// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/checkpointing.hpp: when a run saves a checkpoint, what of the train loop goes into it, and where a resumed run
// begins. Tensors are engine/weights' business.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "engine/data/train_order.hpp"
#include "engine/loop/loss_scale.hpp"
#include "engine/loop/run_plan.hpp"
#include "engine/loop/schedules.hpp"
#include "engine/loop/train_setup.hpp"
#include "engine/weights/checkpoint_folder.hpp"
#include "engine/weights/checkpoint_write.hpp"
#include "engine/weights/state_entries.hpp"

namespace ddhost {

// Section `checkpoint`.
struct CheckpointSettings {
  int64_t every = 0;         // steps; 0: not by steps
  double every_minutes = 0;  // 0: not by time
  bool in_background = true;
  uint64_t most_bytes = 0;  // of a rank's copy; 0: no limit
  KeepRule keep;

  static CheckpointSettings from(const RunConfig& config);
  [[nodiscard]] bool on() const { return every > 0 || every_minutes > 0; }
};

class Checkpointing {
 public:
  // After the strategy's materialize. Throws where the disk has no room for the checkpoints of the run. [collective]
  Checkpointing(RankServices& services, const RunPlan& plan, const StateSource& source);

  // Loads the newest of RunPlan::resume that is not damaged; those that are get another name. Nothing where the list is
  // empty. [collective]
  void load();
  // The step after which a resumed run begins, or 0.
  [[nodiscard]] int64_t first_step_after() const { return resumed_ ? resumed_->progress.step : 0; }

  // The parts of the train loop, once they exist. Warns where the samples are cut otherwise than before. [main]
  void restore(const TrainSetup& setup, std::map<int32_t, SampleOrder>& orders) const;
  void restore(LossScale& loss_scale, Schedules& schedules) const;
  // The run was stopped before the evaluation after its last step.
  [[nodiscard]] bool has_evaluation_pending() const { return resumed_ && resumed_->progress.evaluation_pending; }
  [[nodiscard]] bool saves_at_stop() const { return settings_.on(); }

  // A checkpoint is on its way, and this rank has not written its part yet: for the other ranks, in the next step.
  [[nodiscard]] bool is_writing() const { return save_ != nullptr && !save_->written(); }
  // Rank 0 wants a checkpoint by the clock: to be agreed with the other ranks in the next step.
  [[nodiscard]] bool wants_by_clock() const;

  struct Moment {
    int64_t step;             // done
    StepRequests requests;    // as the ranks agreed on them
    bool ends;                // the run ends after it
    bool evaluation_pending;  // it ends before the evaluation that follows the step
  };
  // After a step and what follows it: begins to save if its turn has come, and commits what all ranks have written. At
  // the end of the run it waits for that. [collective]
  void step_done(const Moment& moment, const TrainSetup& setup, const TrainOrder& order, const LossScale& loss_scale);

 private:
  [[nodiscard]] bool is_due(const Moment& moment);
  [[nodiscard]] TrainProgress progress(const Moment& moment, const TrainSetup& setup, const TrainOrder& order,
                                       const LossScale& loss_scale) const;
  void begin_save(TrainProgress progress);
  void finish_save();
  void require_room() const;
  void require_steps_left(int64_t step) const;
  void restore_param_steps(const Manifest& manifest) const;
  [[nodiscard]] Manifest manifest() const;

  RankServices& services_;
  const RunPlan& plan_;
  const StateSource source_;
  const CheckpointSettings settings_;
  const CheckpointLayout layout_;
  std::optional<Manifest> resumed_;
  int64_t last_saved_ = -1;
  int64_t saves_done_ = 0;                // of those that were asked for
  std::unique_ptr<CheckpointSave> save_;  // on its way
  std::chrono::steady_clock::time_point save_begun_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::duration save_stall_{};  // before training went on
};

}  // namespace ddhost
