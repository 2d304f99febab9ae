// SPDX-License-Identifier: Apache-2.0
#include "engine/record/run_output.hpp"

#include <spdlog/spdlog.h>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string_view>
#include <utility>

#include "base/json.hpp"
#include "base/step_extras.hpp"
#include "base/text.hpp"
#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/record/run_history.hpp"

namespace ddhost {

namespace {

constexpr int64_t kNonfiniteWarnings = 5, kJumpWarnings = 3;
constexpr size_t kMostOfCurve = size_t{16} << 20;  // bytes of a file of run.known_curve

// Writes a row over an old one, whose names keep their memory.
class RowWriter {
 public:
  explicit RowWriter(std::vector<RowValue>& row) : row_(row) {}
  void add(std::string_view name, double value, std::string_view suffix = "", bool is_flag = false) {
    if (n_ == row_.size()) row_.emplace_back();
    RowValue& out = row_[n_++];
    out.name.assign(name).append(suffix);
    out.value = value;
    out.is_flag = is_flag;
  }
  void end() { row_.resize(n_); }

 private:
  std::vector<RowValue>& row_;
  size_t n_ = 0;
};

// "  accuracy 0.8125": the values that fit into `room` columns, without the first, which is already shown.
std::string further_values(std::span<const ReportedValue> values, size_t room) {
  std::string out;
  for (size_t i = 1; i < values.size(); ++i) {
    char number[32];
    std::snprintf(number, sizeof number, "%.4g", values[i].value);
    const std::string one = ddh::str("  ", values[i].name, " ", number);
    if (out.size() + one.size() > room) break;
    out += one;
  }
  return out;
}

}  // namespace

RunOutput::RunOutput(RankServices& services, const std::vector<Plugin>& plugins, std::string run_dir,
                     std::string items_name, const StepNumbers& start, int64_t last_step,
                     std::shared_ptr<TerminalLine> line, std::string facts)
    : services_(services),
      plugins_(plugins),
      run_dir_(std::move(run_dir)),
      items_name_(std::move(items_name)),
      facts_(std::move(facts)),
      start_(start),
      last_done_(start.steps),
      line_(std::move(line)),
      every_(services.config.get<int64_t>("monitor.every")),
      last_step_(last_step),
      profile_(services, run_dir_, start.steps, last_step) {
  if (services.seat.rank == 0) progress_.emplace(services.config, line_, start.steps, last_step);
}

RunOutput::~RunOutput() { line_->finish(); }

void RunOutput::begin(uint64_t epoch_samples) {
  begin_ = Clock::now();
  if (services_.seat.rank != 0) return;
  monitors_.emplace(services_, plugins_, run_dir_, start_.steps);
  count_.emplace(run_dir_, start_);
  progress_->begin(begin_);
  write_config();
  std::string facts;
  if (!facts_.empty()) {
    Json noted = read_json(facts_);
    noted["epoch_samples"] = epoch_samples;
    facts = json_line(noted);
    note_start(run_dir_, facts);
  }
  read_known_curve(facts);
}

RunOutput::Totals RunOutput::totals() const {
  Totals out = totals_;
  out.items_name = items_name_;
  out.seconds = begin_ == Clock::time_point{} ? 0 : std::chrono::duration<double>(Clock::now() - begin_).count();
  return out;
}

void RunOutput::write_config() const {
  const std::string path = run_dir_ + "/config.json";
  std::ofstream out(path);
  out << services_.config.file_text() << '\n';
  if (!out.flush())
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "cannot write '", path, "'; free some space or give another run.dir");
}

// A run that lacks the file is trained all the same.
void RunOutput::read_known_curve(const std::string& facts) {
  const auto path = services_.config.get<std::string>("run.known_curve");
  if (path.empty()) return;
  try {
    known_.emplace(ddh::InputFile(path).read(kMostOfCurve), services_.config.file_text(), facts,
                   services_.seat.world_size());
  } catch (const std::exception& error) {
    services_.log->warn("run.known_curve '{}' can't be used, so the losses are not compared with it: {}", path,
                        error.what());
  }
}

void RunOutput::step_begin(int64_t step) {
  record_step_begin(step);
  services_.seat.record.set_step(step);
  profile_.step_begin(step);
  step_start_ = Clock::now();
}

double RunOutput::step_ms() const {
  return std::chrono::duration<double, std::milli>(Clock::now() - step_start_).count();
}

void RunOutput::step_end(const ddh_step_block& block, const StepOutcome& outcome, const StepFacts& facts) {
  const double step_ms = facts.step_ms;
  last_done_ = block.step;
  totals_.step_ms += step_ms;
  totals_.items += outcome.world.items;
  ++totals_.steps;
  Work& work = work_[facts.work];
  work.samples += facts.samples;
  work.ms += step_ms;
  tell_launcher();
  if (!monitors_ || !step_includes(StepExtra::metrics)) return;
  const double items_per_s = outcome.world.items / step_ms * 1e3;
  if (known_ && !facts.values.empty()) known_->add(block.step, facts.values.front().value);
  if (!outcome.nonfinite.empty()) warn_of_nonfinite(block, outcome.nonfinite);
  warn_of_jump(block, facts);
  fill_row(block, facts, items_per_s);
  if (block.step % every_ == 0 || block.step == last_step_ || outcome.requests.stop) write_step();
  try_to_count([&] { count_->done(block.step); });
  if (failure_.empty() && !count_->has_file()) {
    failure_ =
        ddh::str("'", run_dir_, "/", kRunLock, "' was removed while the run trained, so another run may use its ",
                 "folder; leave the files of a run alone until it ends");
  }
  tell_progress(block, facts, step_ms, items_per_s);
}

void RunOutput::fill_row(const ddh_step_block& block, const StepFacts& facts, double items_per_s) {
  row_.step = block.step;
  row_.program = facts.program;
  RowWriter row(row_.values);
  for (const ReportedValue& value : facts.values) row.add(value.name, value.value);
  row.add("grad_norm", block.grad_norm);
  row.add("lr", block.lr);
  row.add("step_ms", facts.step_ms);
  row.add(items_name_, items_per_s, "_per_s");
  row.add("skipped", block.skip != 0 ? 1.0 : 0.0, "", /*is_flag=*/true);
  row.add("loss_scale", block.loss_scale);
  row.end();
  has_unwritten_row_ = true;
}

// Twice a second, for the page of a run that is going on.
void RunOutput::tell_launcher() {
  constexpr std::chrono::milliseconds kBetween{500};
  static_assert(RankNumbers::kTags == kTagCount && RankNumbers::kKinds == kSpanKinds);
  const Clock::time_point now = Clock::now();
  if (now - told_launcher_ < kBetween) return;
  told_launcher_ = now;
  RankNumbers numbers;
  const Memory::Usage usage = services_.memory.usage();
  for (size_t tag = 0; tag < kTagCount; ++tag) numbers.peak_bytes[tag] = usage[tag].peak_bytes;
  numbers.time_ms = services_.clock.split_ms();
  services_.seat.record.set_numbers(numbers);
}

void RunOutput::write_step() {
  if (!std::exchange(has_unwritten_row_, false)) return;
  add_usage(row_.values);
  write_row(DDH_ROW_STEP, row_.step, row_.program, row_.values);
}

// Of this rank's device, measured at most once a second.
void RunOutput::add_usage(std::vector<RowValue>& row) {
  constexpr std::chrono::seconds kBetween{1};
  const Clock::time_point now = Clock::now();
  if (now - measured_ >= kBetween) {
    usage_ = services_.device->usage();
    measured_ = now;
  }
  if (!usage_) return;
  if (usage_->busy_percent >= 0) row.push_back({"device_busy_percent", static_cast<double>(usage_->busy_percent)});
  if (usage_->used_bytes > 0) row.push_back({"device_used_bytes", static_cast<double>(usage_->used_bytes)});
  if (usage_->celsius >= 0) row.push_back({"device_celsius", static_cast<double>(usage_->celsius)});
}

void RunOutput::evaluated(int64_t step, std::span<const ReportedValue> values, std::string_view program) {
  constexpr size_t kLogColumns = 160;
  if (!monitors_) return;
  std::vector<RowValue> row;
  for (const ReportedValue& value : values) row.push_back({ddh::str("val_", value.name), value.value});
  write_row(DDH_ROW_EVAL, step, program, row);
  services_.log->info("step {}: {}validation {} {:.4f}{}", step, program.empty() ? "" : ddh::str(program, ": "),
                      values[0].name, values[0].value, further_values(values, kLogColumns));
}

void RunOutput::end(const std::string& summary) {
  if (nonfinite_steps_ > kNonfiniteWarnings)
    services_.log->warn("the gradients of {} steps were not finite", nonfinite_steps_);
  if (!monitors_) return;
  if (const std::string text = known_ ? known_->text() : ""; !text.empty()) services_.log->info("{}", text);
  write_step();
  if (!failure_.empty()) return;
  try {
    monitors_->end(summary);
  } catch (const ddh::Error& error) {
    failure_ = error.what();
  }
}

void RunOutput::write_row(int32_t kind, int64_t step, std::string_view program, std::span<const RowValue> values) {
  // Also after a monitor has failed: the others lack no step before the checkpoint that the run goes on from.
  try_to_record(step, [&] { monitors_->row(kind, step, program, values); });
}

template <class Record>
void RunOutput::try_to_record(int64_t step, Record&& record) {
  try {
    record();
  } catch (const ddh::Error& error) {
    if (!failure_.empty()) return services_.log->warn("{}; another monitor has failed before", error.what());
    failure_ = error.what();
    if (step < last_step_) services_.log->warn("{}; the run ends after the next step", failure_);
  }
}

void RunOutput::resumed(const std::string& checkpoint) {
  if (monitors_) monitors_->event(DDH_EVENT_RESUMED, start_.steps, checkpoint);
}

void RunOutput::saved(int64_t step, const std::string& folder) {
  if (progress_) progress_->saved(step);
  if (!monitors_) return;
  try_to_count([&] { count_->saved(step); });
  // Also after a monitor has failed: the others know where the run can go on.
  try_to_record(last_done_, [&] { monitors_->event(DDH_EVENT_CHECKPOINT, step, folder); });
}

// The log has the error itself. What a monitor makes of it must not hide it.
void RunOutput::failed(const std::string& sentence) {
  if (!monitors_) return;
  for (const std::string& failure : monitors_->failed(last_done_, sentence))
    if (failure != sentence) services_.log->warn("{}; the run has failed before", failure);
}

template <class Count>
void RunOutput::try_to_count(Count&& count) {
  try {
    count();
  } catch (const ddh::Error& error) {
    if (count_failure_.empty()) count_failure_ = error.what();
  }
}

// The first steps are named; after that each power of ten is.
void RunOutput::warn_of_nonfinite(const ddh_step_block& block, const std::string& nonfinite) {
  ++nonfinite_steps_;
  int64_t power = 10;
  while (power < nonfinite_steps_) power *= 10;
  if (nonfinite_steps_ > kNonfiniteWarnings && nonfinite_steps_ != power) return;
  const std::string count =
      nonfinite_steps_ == 1 ? ""
                            : ddh::str(" (", nonfinite_steps_, " such steps",
                                       nonfinite_steps_ < kNonfiniteWarnings ? ")" : "; the next are only counted)");
  services_.log->warn("step {}: {}; {}{}", block.step, nonfinite,
                      block.skip != 0 ? "the step is skipped" : "train.skip_nonfinite is off, so it is applied", count);
}

void RunOutput::warn_of_jump(const ddh_step_block& block, const StepFacts& facts) {
  if (facts.values.empty() || jumps_ == kJumpWarnings) return;
  const auto jump = losses_[{facts.phase, facts.work.program}].add(facts.values.front().value);
  if (!jump) return;
  ++jumps_;
  services_.log->warn("step {}: {}{}{}", block.step, facts.program.empty() ? "" : ddh::str(facts.program, ": "),
                      jump_sentence(*jump, services_.config), jumps_ < kJumpWarnings ? "" : "; the next are not named");
}

void RunOutput::tell_progress(const ddh_step_block& block, const StepFacts& facts, double step_ms, double items_per_s) {
  progress_->step_took(step_ms);
  const Clock::time_point now = Clock::now();
  if (!progress_->is_due(block.step, now)) return;
  ProgressFacts told;
  told.step = block.step;
  told.epoch = facts.epoch;
  told.values = facts.values;
  told.lr = block.lr;
  told.grad_norm = block.grad_norm;
  told.items_per_s = items_per_s;
  told.items_name = items_name_;
  told.step_ms = step_ms;
  for (const TagUsage& tag : services_.memory.usage()) told.memory_bytes += tag.peak_bytes;
  progress_->tell(told, now);
}

}  // namespace ddhost
