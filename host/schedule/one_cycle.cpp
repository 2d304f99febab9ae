// SPDX-License-Identifier: Apache-2.0
//
// schedule/one_cycle.cpp: the phases of torch's OneCycleLR.
#include "schedule/one_cycle.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace ddhost {
namespace {

struct Phase {
  double end;  // step at which `to` is reached; not always whole
  double from, to;
};

struct OneCycle {
  std::vector<Phase> phases;
  bool cosine;

  double operator()(double done) const {
    const double step = std::min(done, phases.back().end);
    double begin = 0;
    size_t p = 0;
    for (; p + 1 < phases.size() && step > phases[p].end; ++p) begin = phases[p].end;
    const auto& [end, from, to] = phases[p];
    const double progress = end > begin ? (step - begin) / (end - begin) : 1.0;
    return cosine ? to + (from - to) / 2.0 * (std::cos(std::numbers::pi * progress) + 1)
                  : (to - from) * progress + from;
  }
};

}  // namespace

Curve one_cycle_curve(const ScheduleOptions& options) {
  const double peak = options.number("max_lr"), steps = options.number("decay_steps");
  const double first = peak / options.number("div_factor"), last = first / options.number("final_div_factor");
  const double rising = options.number("pct_start") * steps;
  std::vector<Phase> phases = {{rising - 1, first, peak}};
  if (options.flag("three_phase")) {
    if (options.number("pct_start") > 0.5)
      options.refuse("pct_start", "with three_phase the cycle goes down for as long as up; give at most 0.5");
    phases.push_back({2 * rising - 2, peak, first});
    phases.push_back({steps - 1, first, last});
  } else {
    phases.push_back({steps - 1, peak, last});
  }
  return OneCycle{std::move(phases), options.text("anneal_strategy") == "cos"};
}

}  // namespace ddhost
