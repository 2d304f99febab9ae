// SPDX-License-Identifier: Apache-2.0
#include "report/run_rows.hpp"

#include <algorithm>
#include <cmath>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {

RowCollector::RowCollector(PastRun& run)
    : run_(run), best_name_(run.option("checkpoint.best.metric")), lower_(run.option("checkpoint.best.mode") != "max") {
  if (best_name_.empty()) best_name_ = "val_loss";
}

bool RowCollector::row(const MetricsRow& row) {
  run_.last_step = std::max(run_.last_step, row.step);
  const std::string prefix = row.program.empty() ? "" : row.program + ": ";
  for (const auto& [name, value] : row.values) {
    if (name == "skipped" || name == "loss_scale") continue;
    add(prefix + name, row.step, value);
    if (name.ends_with("_per_s")) items_ = name.substr(0, name.size() - 6);
    const bool is_best = name == best_name_ && std::isfinite(value) &&
                         (!run_.best || (lower_ ? value < run_.best->value : value > run_.best->value));
    if (is_best) run_.best = {prefix + name, row.step, value};
  }
  if (!row.is_evaluation()) {
    if (const double* loss = row.find("loss"); loss != nullptr) run_.loss = *loss;
    add_rate(row);
  }
  return true;
}

void RowCollector::finish(double mean_ms, double steps) {
  run_.items = items_;
  const bool knows_all = mean_ms > 0 && steps > 1 && first_step_ == 1 && !has_programs_;
  const double without_first = (mean_ms * steps - first_ms_) / (steps - 1);
  if (knows_all && without_first > 0)
    run_.items_per_s = last_items_ / without_first * 1e3;
  else if (ms_ > 0)
    run_.items_per_s = done_ / ms_ * 1e3;
  else if (last_ms_ > 0)
    run_.items_per_s = last_items_ / last_ms_ * 1e3;
}

void RowCollector::add(const std::string& name, int64_t step, double value) {
  constexpr size_t kMostCurves = 256;
  const auto [at, is_new] = places_.try_emplace(name, run_.curves.size());
  if (is_new && run_.curves.size() == kMostCurves) {
    places_.erase(at);
    return;
  }
  if (is_new) run_.curves.emplace_back(name);
  run_.curves[at->second].add(step, value);
}

// The first row holds the warm-up.
void RowCollector::add_rate(const MetricsRow& row) {
  const double *ms = row.find("step_ms"), *rate = items_.empty() ? nullptr : row.find(items_ + "_per_s");
  if (ms == nullptr || rate == nullptr || !std::isfinite(*ms) || !std::isfinite(*rate)) return;
  last_ms_ = *ms;
  last_items_ = *ms * *rate / 1e3;
  has_programs_ = has_programs_ || !row.program.empty();
  if (first_step_ < 0) {
    first_step_ = row.step;
    first_ms_ = *ms;
    return;
  }
  ms_ += *ms;
  done_ += last_items_;
}

void WarningCollector::line(std::string_view text) {
  constexpr size_t kFirst = 10, kLast = 40;
  const std::string_view head = text.substr(0, 60);
  if (head.find(" warning: ") == std::string_view::npos && head.find(" error: ") == std::string_view::npos &&
      head.find(" critical: ") == std::string_view::npos)
    return;
  std::vector<std::string>& lines = run_.log;
  if (left_out_ > 0) lines.erase(lines.begin() + kFirst);
  lines.push_back(plain_text(text, 600));
  if (lines.size() > kFirst + kLast) {
    lines.erase(lines.begin() + kFirst);
    ++left_out_;
  }
  if (left_out_ > 0) lines.insert(lines.begin() + kFirst, ddh::str("... ", left_out_, " more ..."));
}

}  // namespace ddhost
