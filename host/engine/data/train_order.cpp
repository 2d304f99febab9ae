// SPDX-License-Identifier: Apache-2.0
#include "engine/data/train_order.hpp"

#include <algorithm>
#include <limits>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {

TrainOrder::TrainOrder(std::vector<TrainPhase> phases, int64_t cycles, std::map<int32_t, SampleOrder> orders,
                       const SampleCut& cut)
    : phases_(std::move(phases)), cycles_(cycles), orders_(std::move(orders)), cut_(cut) {
  constexpr auto kMost = std::numeric_limits<int64_t>::max();
  int64_t in_cycle = 0;
  for (const TrainPhase& phase : phases_) {
    for (const TrainPhase::Turn& turn : phase.turns) orders_.at(turn.program).require(cut_of(turn));
    steps_.push_back(resolved_steps(phase));
    if (steps_.back() > kMost - in_cycle)
      ddh::fail(DDH_OUT_OF_RANGE, "the run has too many steps to count; give fewer");
    in_cycle += steps_.back();
  }
  if (in_cycle > 0 && cycles_ > kMost / in_cycle)
    ddh::fail(DDH_OUT_OF_RANGE, cycles_, " cycles of ", in_cycle, " steps are too many to count; give fewer");
  last_step_ = in_cycle * cycles_;
}

// Whole rounds of turns, until the first turn's program has had its epochs.
int64_t TrainOrder::resolved_steps(const TrainPhase& phase) const {
  if (phase.epochs == 0) return phase.steps;
  const TrainPhase::Turn& first = phase.turns.front();
  constexpr int64_t kMost = int64_t{1} << 40;
  const SampleOrder& order = orders_.at(first.program);
  if (phase.epochs > kMost || order.epoch_size() > static_cast<uint64_t>(kMost) / static_cast<uint64_t>(phase.epochs))
    ddh::fail(DDH_OUT_OF_RANGE, phase.epochs, " epochs of ", order.epoch_size(),
              " samples are too many to count; give fewer epochs");
  const auto in_round = std::count_if(phase.turns.begin(), phase.turns.end(),
                                      [&](const TrainPhase::Turn& turn) { return turn.program == first.program; });
  const int64_t rounds = (order.steps_of(phase.epochs, cut_of(first)) + in_round - 1) / in_round;
  return rounds * static_cast<int64_t>(phase.turns.size());
}

TrainPosition TrainOrder::begin() const {
  TrainPosition at;
  at.samples.resize(orders_.empty() ? 0 : static_cast<size_t>(orders_.rbegin()->first) + 1);
  begin_phase(at);
  return at;
}

void TrainOrder::begin_phase(TrainPosition& at) const {
  const TrainPhase& phase = phases_[place_of(at.phase)];
  for (const TrainPhase::Turn& turn : phase.turns) {
    uint64_t& samples = at.samples[static_cast<size_t>(turn.program)];
    if (phase.epochs > 0) samples = orders_.at(turn.program).next_epoch(samples);
  }
}

TrainStep TrainOrder::advance(TrainPosition& at) const {
  while (at.phase_step == steps_of(at.phase)) {
    ++at.phase;
    at.phase_step = 0;
    begin_phase(at);
  }
  const TrainPhase& phase = phases_[place_of(at.phase)];
  const TrainPhase::Turn& turn = phase.turns[static_cast<size_t>(at.phase_step) % phase.turns.size()];
  TrainStep step{++at.step, at.phase, ++at.phase_step, turn.program, cut_of(turn), {}};
  step.span = orders_.at(turn.program).take(at.samples[static_cast<size_t>(turn.program)], step.cut);
  return step;
}

bool TrainOrder::ends_epoch(const TrainStep& step, int64_t every) const {
  const SampleOrder& order = orders_.at(step.program);
  const uint64_t in_row = order.epoch_size() * static_cast<uint64_t>(every);
  return order.next_position(step.span.first + step.span.count, step.cut) / in_row > step.span.first / in_row;
}

int32_t TrainOrder::program_with_empty() const {
  for (TrainPosition at = begin(); !is_at_end(at);) {
    const TrainStep step = advance(at);
    if (step.span.count + step.cut.micro_batch <= step.cut.per_step()) return step.program;
  }
  return -1;
}

}  // namespace ddhost
