// SPDX-License-Identifier: Apache-2.0
#include "engine/record/run_output.hpp"

#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/record/run_history.hpp"

namespace ddhost {

namespace {

constexpr int64_t kNonfiniteWarnings = 5;
constexpr std::chrono::milliseconds kRedraw{100};  // often enough for a terminal

std::string duration_text(double seconds) {
  char text[32];
  const auto s = std::llround(seconds);
  if (s >= 3600) {
    std::snprintf(text, sizeof text, "%lldh%02lldm", s / 3600, s / 60 % 60);
  } else {
    std::snprintf(text, sizeof text, "%lldm%02llds", s / 60, s % 60);
  }
  return text;
}

// "  epoch 2/5 40%", "  epoch 2 40%"
std::string epoch_text(const EpochPlace& place) {
  const std::string of = place.epochs > 0 ? ddh::str("/", place.epochs) : "";
  return place.epoch == 0 ? "" : ddh::str("  epoch ", place.epoch, of, " ", std::floor(100 * place.part), "%");
}

std::vector<RowValue> row_of(std::span<const ReportedValue> values, const std::string& prefix) {
  std::vector<RowValue> row;
  for (const ReportedValue& v : values) row.push_back({prefix + std::string(v.name), v.value});
  return row;
}

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

size_t terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

RunOutput::RunOutput(RankServices& services, const std::vector<Plugin>& plugins, std::string run_dir,
                     std::string items_name, int64_t resumed_after, int64_t last_step, std::string facts)
    : services_(services),
      plugins_(plugins),
      run_dir_(std::move(run_dir)),
      items_name_(std::move(items_name)),
      facts_(std::move(facts)),
      resumed_after_(resumed_after),
      every_(services.config.get<int64_t>("monitor.every")),
      last_step_(last_step) {
  if (services.seat.rank != 0) return;
  const auto progress = services.config.get<std::string>("monitor.progress");
  const bool quiet = services.config.get<bool>("run.quiet");
  const char* terminal = std::getenv("TERM");
  const bool can_redraw = isatty(STDERR_FILENO) != 0 && terminal != nullptr && std::string_view(terminal) != "dumb";
  progress_ = !quiet && (progress == "on" || (progress == "auto" && can_redraw));
}

RunOutput::~RunOutput() { finish_line(); }

void RunOutput::begin() {
  if (services_.seat.rank != 0) return;
  monitors_.emplace(services_, plugins_, run_dir_, resumed_after_);
  count_.emplace(run_dir_, resumed_after_);
  write_config();
  if (!facts_.empty()) note_start(run_dir_, facts_);
}

void RunOutput::write_config() const {
  const std::string path = run_dir_ + "/config.json";
  std::ofstream out(path);
  out << services_.config.file_text() << '\n';
  if (!out.flush())
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "cannot write '", path, "'; free some space or give another run.dir");
}

void RunOutput::step_begin(int64_t step) {
  services_.seat.record.set_step(step);
  step_start_ = Clock::now();
}

void RunOutput::step_end(const ddh_step_block& block, const StepOutcome& outcome, const StepFacts& facts) {
  const double step_ms = std::chrono::duration<double, std::milli>(Clock::now() - step_start_).count();
  total_ms_ += step_ms;
  ++steps_timed_;
  Work& work = work_[facts.work];
  work.samples += facts.samples;
  work.ms += step_ms;
  if (!monitors_) return;
  const double items_per_s = outcome.world.items / step_ms * 1e3;
  if (!outcome.nonfinite.empty()) warn_of_nonfinite(block, outcome.nonfinite);
  std::vector<RowValue> row = row_of(facts.values, "");
  row.insert(row.end(), {{"grad_norm", block.grad_norm},
                         {"lr", block.lr},
                         {"step_ms", step_ms},
                         {items_name_ + "_per_s", items_per_s},
                         {"skipped", block.skip != 0 ? 1.0 : 0.0, true},
                         {"loss_scale", block.loss_scale}});
  unwritten_ = Row{block.step, std::string(facts.program), std::move(row)};
  if (block.step % every_ == 0 || block.step == last_step_ || outcome.requests.stop) write_step();
  try_to_count([&] { count_->done(block.step); });
  if (failure_.empty() && !count_->has_file()) {
    finish_line();
    failure_ =
        ddh::str("'", run_dir_, "/", kRunLock, "' was removed while the run trained, so another run may use its ",
                 "folder; leave the files of a run alone until it ends");
  }
  smooth_ms_ = smooth_ms_ == 0 ? step_ms : 0.9 * smooth_ms_ + 0.1 * step_ms;
  show_progress(block, facts, step_ms, items_per_s);
}

void RunOutput::write_step() {
  if (!unwritten_) return;
  add_usage(unwritten_->values);
  write_row(DDH_ROW_STEP, unwritten_->step, unwritten_->program, unwritten_->values);
  unwritten_.reset();
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
  write_row(DDH_ROW_EVAL, step, program, row_of(values, "val_"));
  finish_line();
  services_.log->info("step {}: {}validation {} {:.4f}{}", step, program.empty() ? "" : ddh::str(program, ": "),
                      values[0].name, values[0].value, further_values(values, kLogColumns));
}

void RunOutput::end(const std::string& summary) {
  if (nonfinite_steps_ > kNonfiniteWarnings)
    services_.log->warn("the gradients of {} steps were not finite", nonfinite_steps_);
  if (!monitors_) return;
  write_step();  // train.patience ends a run before its last step
  if (!failure_.empty()) return;
  try {
    monitors_->end(summary);
  } catch (const ddh::Error& error) {
    failure_ = error.what();
  }
}

void RunOutput::write_row(int32_t kind, int64_t step, std::string_view program, std::span<const RowValue> values) {
  if (!failure_.empty()) return;
  try {
    monitors_->row(kind, step, program, values);
  } catch (const ddh::Error& error) {
    failure_ = error.what();
    finish_line();
    if (step < last_step_) services_.log->warn("{}; the run ends after the next step", failure_);
  }
}

void RunOutput::saved(int64_t step) {
  if (count_ && step > 0) try_to_count([&] { count_->saved(step); });
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
  finish_line();
  const std::string count =
      nonfinite_steps_ == 1 ? ""
                            : ddh::str(" (", nonfinite_steps_, " such steps",
                                       nonfinite_steps_ < kNonfiniteWarnings ? ")" : "; the next are only counted)");
  services_.log->warn("step {}: {}; {}{}", block.step, nonfinite,
                      block.skip != 0 ? "the step is skipped" : "train.skip_nonfinite is off, so it is applied", count);
}

void RunOutput::show_progress(const ddh_step_block& block, const StepFacts& facts, double step_ms, double items_per_s) {
  const bool last = block.step == last_step_;
  const Clock::time_point now = Clock::now();
  if (!progress_ || (!last && now - last_shown_ < kRedraw)) return;
  last_shown_ = now;
  const double eta_s = smooth_ms_ * static_cast<double>(last_step_ - block.step) / 1e3;
  char text[256];
  std::snprintf(text, sizeof text, "step %lld/%lld%.40s  loss %.4f  lr %.3g  norm %.3f  %.0f %.40s/s  %.1f ms  eta %s",
                static_cast<long long>(block.step), static_cast<long long>(last_step_), epoch_text(facts.epoch).c_str(),
                facts.values[0].value, block.lr, block.grad_norm, items_per_s, items_name_.c_str(), step_ms,
                duration_text(eta_s).c_str());
  const size_t columns = terminal_columns(), used = std::string_view(text).size() + 1;
  std::fprintf(stderr, "\r%s%s \033[K", shown_text(text).c_str(),
               shown_text(further_values(facts.values, columns > used ? columns - used : 0)).c_str());
  std::fflush(stderr);
  line_open_ = true;
}

void RunOutput::finish_line() {
  if (line_open_) std::fputc('\n', stderr);
  line_open_ = false;
}

Monitors::Monitors(RankServices& services, const std::vector<Plugin>& plugins, const std::string& run_dir,
                   int64_t resumed_after) {
  const std::string config = services.config.file_text();
  const ddh_monitor_args args{sizeof(ddh_monitor_args), services.seat.world_size(), run_dir.c_str(), config.c_str(),
                              resumed_after};
  for (const Plugin& plugin : plugins) {
    const std::string section = "monitor." + plugin.id();
    const PluginSeat& seat = seats_.emplace_back(services, "monitor:" + plugin.id(), section);
    Instance instance(plugin, seat.host(), section, &services.seat.record);
    const auto& table = instance.require<ddh_monitor_api>(DDH_MONITOR_IFACE, DDH_MONITOR_API_MIN_SIZE);
    instance.call(PluginCall::kRunBegin, table.begin, &args);
    all_.push_back({&table, std::move(instance)});
  }
}

void Monitors::row(int32_t kind, int64_t step, std::string_view program, std::span<const RowValue> values) const {
  const std::string program_name(program);
  std::vector<ddh_row_value> given;
  for (const RowValue& value : values) given.push_back({value.name.c_str(), value.value, value.is_flag ? 1U : 0U, 0});
  const ddh_row row{sizeof(ddh_row),
                    kind,
                    step,
                    program.empty() ? nullptr : program_name.c_str(),
                    given.data(),
                    static_cast<uint32_t>(given.size()),
                    0};
  for (const One& one : all_) one.instance.call(PluginCall::kRow, one.table->row, &row);
}

void Monitors::end(const std::string& summary) const {
  for (const One& one : all_) one.instance.call(PluginCall::kRunEnd, one.table->end, summary.c_str());
}

}  // namespace ddhost
