// SPDX-License-Identifier: Apache-2.0
//
// engine/record/run_output.hpp: the output of a run: rows for its monitor plugins, progress, warnings. Rank 0 writes them;
// the other ranks only report their step to the launcher.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "engine/record/known_curve.hpp"
#include "engine/record/loss_rise.hpp"
#include "engine/record/monitors.hpp"
#include "engine/record/profile/step_profile.hpp"
#include "engine/record/progress_report.hpp"
#include "engine/record/step_count.hpp"
#include "engine/samples/train_order.hpp"
#include "engine/services/tables/interfaces.hpp"

namespace ddhost {

// Steps that cost the same.
struct WorkKind {
  int32_t program;  // of the model
  uint64_t micro_batch;
  bool operator<(const WorkKind& other) const {
    return std::tie(program, micro_batch) < std::tie(other.program, other.micro_batch);
  }
};

// The results of a step, besides the scalars of its block.
struct StepFacts {
  std::span<const ReportedValue> values;  // the first is the loss
  std::string_view program;               // the step's program if training programs take turns; else ""
  uint64_t samples;                       // of all ranks
  WorkKind work;
  EpochPlace epoch;
  double step_ms;
  size_t phase = 0;  // its place in train.phases
};

class RunOutput {
 public:
  // `items_name`: what is counted per second ("tokens"). `plugins` outlive the object.
  // `start`: for run.lock; its `steps` is the step of the checkpoint that the run was resumed from, or 0.
  // `facts`: of this start, for run.json (run_history.hpp); "": none.
  RunOutput(RankServices& services, const std::vector<Plugin>& plugins, std::string run_dir, std::string items_name,
            const StepNumbers& start, int64_t last_step, std::shared_ptr<TerminalLine> line, std::string facts = "");
  ~RunOutput();
  RunOutput(const RunOutput&) = delete;
  RunOutput& operator=(const RunOutput&) = delete;

  // Called before the first step or evaluation, but not if a resumed run has none left: its files stay as they are. Lets
  // the monitors open what they write to, and writes config.json and run.json. `epoch_samples`: of the first program. Error: a
  // file can't be written.
  void begin(uint64_t epoch_samples);
  void step_begin(int64_t step);
  // The work of the step is done, also where its metrics come later.
  void work_done(int64_t step, uint64_t micro_batch) {
    last_done_ = step;
    profile_.step_end(step, micro_batch);
  }
  // Milliseconds since step_begin.
  [[nodiscard]] double step_ms() const;
  // `facts` of a step of some time ago have their step_ms.
  void step_end(const ddh_step_block& block, const StepOutcome& outcome, const StepFacts& facts);
  // Records the newest step, if monitor.every has left it out: the run ends with it.
  void write_step();
  // `program`: as in StepFacts.
  void evaluated(int64_t step, std::span<const ReportedValue> values, std::string_view program);
  // Called after begin() if the run was resumed. `checkpoint`: its folder. Error: a monitor can't record it.
  void resumed(const std::string& checkpoint);
  // A checkpoint of this run is complete. `folder`: its own.
  void saved(int64_t step, const std::string& folder);
  // Called if the run ends by an error. `sentence`: of the error.
  void failed(const std::string& sentence);
  // Why rows are not recorded any more: the sentence of the first monitor that failed. "": none has. The run then ends
  // after the next step, and keeps what it has trained. Rank 0 only.
  [[nodiscard]] const std::string& failure() const { return failure_; }
  // Why run.lock could not be written. The run goes on, and tells it at its end. "": it could.
  [[nodiscard]] const std::string& count_failure() const { return count_failure_; }
  // Called if the run did not fail. `summary`: a JSON object.
  void end(const std::string& summary);

  // What the run has done since it began, or was resumed.
  struct Totals {
    std::string items_name;
    int64_t steps = 0;
    double items = 0;    // of all ranks
    double step_ms = 0;  // of all steps
    double seconds = 0;  // with evaluations and checkpoints
    [[nodiscard]] double mean_step_ms() const { return steps == 0 ? 0 : step_ms / static_cast<double>(steps); }
    [[nodiscard]] double items_per_s() const { return step_ms > 0 ? items / step_ms * 1e3 : 0; }
  };
  [[nodiscard]] Totals totals() const;
  // What this run has done so far.
  struct Work {
    uint64_t samples = 0;  // of all ranks
    double ms = 0;
  };
  [[nodiscard]] const std::map<WorkKind, Work>& work() const { return work_; }
  [[nodiscard]] const StepProfile& profile() const { return profile_; }

 private:
  using Clock = std::chrono::steady_clock;
  void write_row(int32_t kind, int64_t step, std::string_view program, std::span<const RowValue> values);
  template <class Record>
  void try_to_record(int64_t step, Record&& record);
  struct Row {
    int64_t step = 0;
    std::string program;
    std::vector<RowValue> values;
  };
  void fill_row(const ddh_step_block& block, const StepFacts& facts, double items_per_s);
  void write_config() const;
  void read_known_curve(const std::string& facts);
  void tell_launcher();
  template <class Count>
  void try_to_count(Count&& count);
  void add_usage(std::vector<RowValue>& row);
  void warn_of_nonfinite(const ddh_step_block& block, const std::string& nonfinite);
  void warn_of_jump(const ddh_step_block& block, const StepFacts& facts);
  void tell_progress(const ddh_step_block& block, const StepFacts& facts, double step_ms, double items_per_s);

  RankServices& services_;
  const std::vector<Plugin>& plugins_;
  const std::string run_dir_;
  const std::string items_name_;
  const std::string facts_;
  const StepNumbers start_;
  std::optional<Monitors> monitors_;  // on rank 0, after begin()
  std::optional<StepCount> count_;    // the same
  std::string failure_, count_failure_;
  int64_t nonfinite_steps_ = 0;
  int64_t last_done_;               // step
  Row row_;                         // of the last step; kept, so that a step needs no memory
  bool has_unwritten_row_ = false;  // because the row was not due
  const std::shared_ptr<TerminalLine> line_;
  std::optional<ProgressReport> progress_;  // on rank 0
  int64_t every_ = 1;
  const int64_t last_step_;
  StepProfile profile_;
  std::optional<KnownCurve> known_;                        // on rank 0
  std::map<std::pair<size_t, int32_t>, LossRise> losses_;  // on rank 0, by phase and program
  int64_t jumps_ = 0;
  Clock::time_point begin_{}, step_start_{};
  Clock::time_point measured_{}, told_launcher_{};
  std::optional<ddh_device_usage> usage_;  // of the device, at `measured_`
  Totals totals_;
  std::map<WorkKind, Work> work_;
};

}  // namespace ddhost
