// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/checkpointing.hpp: decides when a run saves a checkpoint, and saves and restores the state of the train
// loop. engine/state saves and loads the tensors. A checkpoint also says in which order samples come, and whether this
// program continues it.
#pragma once

#include <chrono>
#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/manifest.hpp"
#include "engine/checks/replicas.hpp"
#include "engine/checks/step_checks.hpp"
#include "engine/loop/checkpoint_settings.hpp"
#include "engine/loop/evaluations.hpp"
#include "engine/loop/memory_checkpoints.hpp"
#include "engine/samples/train_order.hpp"
#include "engine/settings/loss_scale.hpp"
#include "engine/settings/phase_rates.hpp"
#include "engine/settings/run_plan.hpp"
#include "engine/state/checkpoint_tensors.hpp"
#include "engine/state/shown_weights.hpp"
#include "engine/state/state_entries.hpp"

namespace ddhost {

// What a checkpoint keeps besides tensors, after a step.
struct TrainState {
  const TrainOrder& order;
  const TrainPosition& position;
  LossScale& loss_scale;
  int64_t& skipped_in_a_row;  // steps
  PhaseRates& rates;
  Patience& patience;
  BestCheckpoint& best;
};

class Checkpointing {
 public:
  // Called after the strategy's materialize. Takes the memory in which checkpoints are copied. `checks` knows why values
  // may not be finite. The arguments outlive the object. [collective]
  Checkpointing(RankServices& services, const RunPlan& plan, const StateSource& source, ReplicaChecks& replicas,
                const StepChecks& checks, ShownWeights& shown);

  // Loads the newest checkpoint of RunPlan::resume, or in the memory of the hosts, that is not damaged. Damaged ones are
  // renamed. Does nothing if there is none. [collective]
  void load(const TrainOrder& order);
  [[nodiscard]] bool has_resumed() const { return resumed_.has_value(); }
  // The step after which a resumed run begins, or 0.
  [[nodiscard]] int64_t first_step_after() const { return resumed_ ? resumed_->progress.step : 0; }

  // For run.lock.
  [[nodiscard]] StepNumbers numbers_at_start() const {
    return memory_.numbers_after(first_step_after(), resumed_from_);
  }

  // For TrainOrder::begin_after; nothing for a new run.
  [[nodiscard]] std::optional<TrainPosition> position() const;
  // Throws if the disk has no room for the checkpoints that the rest of the run keeps at a time. `order` begins where the
  // run does. [collective]
  void require_room(const TrainOrder& order) const;
  // Restores the parts of the train loop, after they were created. [main]
  void restore(const TrainState& state) const;
  // Whether the run was stopped before the evaluation after its last step.
  [[nodiscard]] bool has_evaluation_pending() const { return resumed_ && resumed_->progress.evaluation_pending; }
  [[nodiscard]] bool saves_at_stop() const { return settings_.on() || settings_.on_exit; }
  // Whether the state after this step is on the disk.
  [[nodiscard]] bool has_saved(int64_t step) const { return step == last_saved_ && save_ == nullptr; }
  // Whether the save of this step has begun, or has ended.
  [[nodiscard]] bool has_begun(int64_t step) const { return step == last_begun_; }
  // The folder of the checkpoint that the run was resumed from; empty: none.
  [[nodiscard]] const std::filesystem::path& resumed_from() const { return resumed_from_; }
  // The checkpoints that became complete since the last call, the oldest first. A step may complete two: the one that was
  // being written, and its own.
  std::vector<CheckpointPlace> take_committed() { return std::exchange(committed_, {}); }
  // The step of the newest checkpoint that this run has saved; 0: none.
  [[nodiscard]] int64_t last_committed() const { return last_committed_; }

  // Called after the evaluation that the stopped run left out. Saves its result, so that a further resume does not repeat
  // it, and marks the checkpoint if it is the best one. [collective]
  void late_evaluation_done(const TrainState& state);

  // Whether this rank still writes its part of a checkpoint; the next step tells the other ranks.
  [[nodiscard]] bool is_writing() const { return save_ != nullptr && !save_->written(); }
  // Must be called before parameters or optimizer state change: waits for the rest of the checkpoint's copy.
  void before_update();
  // Whether checkpoint.every_minutes have passed on rank 0. The ranks agree on it in the next step.
  [[nodiscard]] bool wants_by_clock() const;

  struct Moment {
    const TrainStep& step;    // done
    StepRequests requests;    // as the ranks agreed on them
    bool ends;                // the run ends after it
    bool evaluation_pending;  // it ends before the evaluation that follows the step
  };
  // Called after a step and what follows it. Begins to save if a checkpoint is due, and commits a checkpoint that all
  // ranks have written. At the end of the run it waits for the commit. [collective]
  void step_done(const Moment& moment, const TrainState& state);

 private:
  enum class Due { no, in_memory, on_disk };
  [[nodiscard]] Due due(const Moment& moment, const TrainState& state);
  [[nodiscard]] bool is_due_on_disk(const Moment& moment, const TrainState& state);
  [[nodiscard]] TrainProgress progress(const TrainState& state, bool evaluation_pending) const;
  void begin_save(TrainProgress progress, Due where) { begin_save(std::move(progress), where, save_settings(where)); }
  void begin_save(TrainProgress progress, Due where, const SaveSettings& settings);
  template <class Body>
  void told_of_memory(Body&& body) const;
  void finish_save();
  void save_on_exit(TrainProgress progress);
  void end_pruning();
  void tell(const std::string& sentence) const;  // rank 0's log; "": nothing
  void tell_warning(const std::string& failure) const;
  void restore_best(BestCheckpoint& best) const;
  void warn_of_other_data(const TrainOrder& order) const;
  void set_later(std::span<const int32_t> programs, const Manifest& manifest);
  void restore_optimizers(const Manifest& manifest) const;
  void require_equal_numbers() const;
  [[nodiscard]] std::vector<uint8_t> shown_in(const Manifest& manifest) const;
  [[nodiscard]] Manifest manifest() const;
  [[nodiscard]] SaveSettings save_settings(Due where = Due::on_disk) const;

  RankServices& services_;
  const RunPlan& plan_;
  const StateSource source_;
  ReplicaChecks& replicas_;  // before each save
  const StepChecks& checks_;
  ShownWeights& shown_;
  const CheckpointSettings settings_;
  const MemoryCheckpoints memory_;
  CheckpointLayout layout_;  // of the checkpoint that is loaded or saved; later phases may have less state
  CopyMemory copy_memory_;
  std::optional<Manifest> resumed_;
  std::filesystem::path resumed_from_;
  std::vector<CheckpointPlace> committed_;  // not taken yet
  int64_t last_saved_ = -1;                 // its save on the disk has begun, or the run was resumed from it
  int64_t last_begun_ = -1;                 // the same on the disk or in memory
  int64_t last_committed_ = 0;              // its save has ended
  int64_t saves_done_ = 0;                  // of those that were asked for
  std::unique_ptr<CheckpointSave> save_;    // being written
  Due where_ = Due::no;                     // it is written
  bool said_memory_ = false;                // the first checkpoint in memory was logged
  std::future<std::string>
      pruning_;  // the removal of old checkpoints, and its error. Without another thread, get() removes
  std::chrono::steady_clock::time_point save_begun_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point disk_save_begun_ = save_begun_;  // of the last one on the disk, or of the run
  std::chrono::steady_clock::duration save_stall_{};                     // time that training waited
};

// The training programs whose samples have another order now than when the checkpoint was saved ("'train' (100 samples)"),
// or "". `from_file`: the run reads its order from data.order, which is always continued.
std::string programs_in_another_order(const Manifest& manifest, bool from_file);

}  // namespace ddhost
