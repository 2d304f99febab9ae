// SPDX-License-Identifier: Apache-2.0
#include "engine/record/progress_report.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/terminal.hpp"

namespace ddhost {
namespace {
constexpr std::chrono::milliseconds kRedraw{100};  // often enough for a person
constexpr size_t kAnyWidth = 4096;
}  // namespace

ProgressReport::ProgressReport(const RunConfig& config, std::shared_ptr<TerminalLine> line, int64_t begun,
                               int64_t last_step)
    : line_(std::move(line)), begun_(begun), last_step_(last_step), told_step_(begun) {
  const auto wish = config.get<std::string>("monitor.progress");
  if (config.get<bool>("run.quiet") || wish == "off") return;
  const double seconds = config.get<double>("monitor.print_every");
  every_ = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  if (wish == "on" || can_redraw(STDERR_FILENO))
    form_ = Form::kLine;
  else if (seconds > 0)
    form_ = Form::kPlain;
}

// The tenth part of the run in which a step ends.
int64_t ProgressReport::tenth(int64_t step) const {
  return last_step_ <= begun_
             ? 10
             : static_cast<int64_t>(10 * static_cast<double>(step - begun_) / static_cast<double>(last_step_ - begun_));
}

bool ProgressReport::is_due(int64_t step, Clock::time_point now) const {
  if (form_ == Form::kNone) return false;
  if (step == last_step_) return true;
  if (form_ == Form::kLine) return now - told_ >= kRedraw;
  return now - told_ >= every_ || tenth(step) > tenth(told_step_);
}

void ProgressReport::tell(ProgressFacts facts, Clock::time_point now) {
  told_ = now;
  told_step_ = facts.step;
  facts.last_step = last_step_;
  facts.seconds_left = smooth_ms_ * static_cast<double>(last_step_ - facts.step) / 1e3;
  if (saved_) facts.checkpoint_seconds = std::chrono::duration<double>(now - *saved_).count();
  if (form_ == Form::kPlain) {
    std::fputs((progress_text(facts, kAnyWidth) + '\n').c_str(), stderr);
    std::fflush(stderr);
    return;
  }
  // The last column stays free: in it some terminals begin the next line.
  const size_t columns = terminal_columns(STDERR_FILENO);
  line_->draw(progress_text(facts, std::max<size_t>(columns, 2) - 1), columns);
}

void ProgressReport::saved(int64_t step) {
  if (step == saved_step_) return;
  saved_step_ = step;
  saved_ = Clock::now();
}

}  // namespace ddhost
