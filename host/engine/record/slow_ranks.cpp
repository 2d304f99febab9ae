// SPDX-License-Identifier: Apache-2.0
#include "engine/record/slow_ranks.hpp"

#include <spdlog/spdlog.h>
#include <algorithm>
#include <cstdio>
#include <numeric>

namespace ddhost {
namespace {

constexpr int64_t kSteps = 50;
constexpr double kSlow = 1.2, kLeastMs = 2;

size_t at(StepSection section) { return static_cast<size_t>(section); }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// `ms_of`: of one rank.
template <class MsOf>
double median_of(std::span<const SectionTimes> steps, const MsOf& ms_of) {
  std::vector<double> values;
  for (const SectionTimes& times : steps) values.push_back(ms_of(times));
  return median(std::move(values));
}

bool is_slow(double ms, double median_ms) { return ms > kSlow * median_ms && ms >= median_ms + kLeastMs; }

double own_work(const SectionTimes& times) { return std::accumulate(times.begin(), times.end(), 0.0); }

std::string rounded_ms(double ms) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f ms", ms < 10 ? 1 : 0, ms);
  return text;
}

// "computes for 31 ms of a step"
std::string what_takes_long(const SlowRank& slow) {
  const std::string ms = rounded_ms(slow.ms);
  switch (slow.section) {
    case StepSection::compute:
      return "computes for " + ms + " of a step";
    case StepSection::data:
      return "waits for data for " + ms + " of a step";
    case StepSection::other:
      break;
  }
  return "takes " + ms + " of a step beside computing, communication and data";
}

const char* cure(StepSection section) {
  switch (section) {
    case StepSection::compute:
      return "look for other programs on its cores (top), or give each rank as many cores as the others";
    case StepSection::data:
      return "raise data.workers, or put its data on a faster disk";
    case StepSection::other:
      break;
  }
  return "see with --profile what it does: it may write files to a slow disk";
}

}  // namespace

std::optional<SlowRank> slowest_rank(std::span<const SectionTimes> steps) {
  if (steps.size() < 2) return std::nullopt;
  const auto shorter = [](const SectionTimes& a, const SectionTimes& b) { return own_work(a) < own_work(b); };
  const auto slowest = std::max_element(steps.begin(), steps.end(), shorter);
  if (!is_slow(own_work(*slowest), median_of(steps, own_work))) return std::nullopt;
  std::array<double, kStepSections> medians{};
  size_t most = 0;
  for (size_t section = 0; section < kStepSections; ++section) {
    medians[section] = median_of(steps, [&](const SectionTimes& times) { return times[section]; });
    if ((*slowest)[section] - medians[section] > (*slowest)[most] - medians[most]) most = section;
  }
  return SlowRank{static_cast<int32_t>(slowest - steps.begin()), static_cast<StepSection>(most), (*slowest)[most],
                  medians[most]};
}

// Steps of a rhythm end where all ranks agree.
SlowRanks::SlowRanks(RankServices& services)
    : services_(services),
      every_((kSteps + services.step->world_every() - 1) / services.step->world_every() *
             services.step->world_every()) {}

SectionTimes SlowRanks::times_now() const {
  const auto ms = services_.clock.split_ms();
  SectionTimes out{};
  out[at(StepSection::compute)] = ms[DDH_SPAN_FORWARD] + ms[DDH_SPAN_BACKWARD] + ms[DDH_SPAN_OPTIM];
  out[at(StepSection::data)] = ms[DDH_SPAN_DATA];
  out[at(StepSection::other)] = ms[DDH_SPAN_OTHER];
  return out;
}

void SlowRanks::step_done(int64_t step) {
  // A device computes after its work was queued, and the spans measure the queueing.
  if (services_.seat.world_size() == 1 || !services_.device->is_host_memory()) return;
  if (!since_) since_ = step - 1;  // the clock began with this step
  if (step % every_ != 0) return;
  const SectionTimes now = times_now();
  const int64_t n_steps = step - *since_;
  SectionTimes mine{};
  for (size_t section = 0; section < kStepSections; ++section)
    mine[section] = (now[section] - before_[section]) / static_cast<double>(n_steps);
  before_ = now;
  since_ = step;
  if (n_steps != every_) return;  // a resumed run begins between
  std::vector<SectionTimes> all(static_cast<size_t>(services_.seat.world_size()));
  services_.comm->all_gather_bytes(mine.data(), all.data(), sizeof mine, "step times");
  if (services_.seat.rank != 0) return;
  const std::optional<SlowRank> slow = slowest_rank(all);
  const bool is_known = slow && named_ && slow->rank == named_->rank && slow->section == named_->section;
  if (slow && !is_known) tell(step, *slow);
  named_ = slow;
}

void SlowRanks::tell(int64_t step, const SlowRank& slow) const {
  const Nodes& nodes = *services_.seat.nodes;
  std::string rank = ddh::str("rank ", slow.rank);
  if (nodes.count() > 1) rank += ddh::str(" on node ", nodes.node(slow.rank));
  if (!nodes.addresses().empty()) rank += " (" + nodes.addresses()[static_cast<size_t>(nodes.node(slow.rank))] + ")";
  services_.log->warn("steps {} to {}: {} {}, the median rank for {}, so the others wait for it; {}", step - every_ + 1,
                      step, rank, what_takes_long(slow), rounded_ms(slow.median_ms), cure(slow.section));
}

}  // namespace ddhost
