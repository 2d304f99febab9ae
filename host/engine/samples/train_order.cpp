// SPDX-License-Identifier: Apache-2.0
#include "engine/samples/train_order.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {

TrainOrder::TrainOrder(std::vector<TrainPhase> phases, int64_t cycles, std::map<int32_t, SampleOrder> orders,
                       const SampleCut& cut)
    : phases_(std::move(phases)), cycles_(cycles), orders_(std::move(orders)), cut_(cut) {
  constexpr auto kMost = std::numeric_limits<int64_t>::max();
  begin_.samples.resize(orders_.empty() ? 0 : static_cast<size_t>(orders_.rbegin()->first) + 1);
  int64_t in_cycle = 0;
  for (const TrainPhase& phase : phases_) {
    for (const TrainPhase::Turn& turn : phase.turns) orders_.at(turn.program).require(cut_of(turn));
    require_countable(phase);
    TrainPosition alone = begin_;
    alone.phase = static_cast<int64_t>(steps_.size());
    steps_.push_back(steps_left(alone));
    if (steps_.back() > kMost - in_cycle)
      ddh::fail(DDH_OUT_OF_RANGE, "the run has too many steps to count; give fewer");
    in_cycle += steps_.back();
  }
  if (in_cycle > 0 && cycles_ > kMost / in_cycle)
    ddh::fail(DDH_OUT_OF_RANGE, cycles_, " cycles of ", in_cycle, " steps are too many to count; give fewer");
  last_step_ = in_cycle * cycles_;
  first_end_ = steps_.front();
}

void TrainOrder::require_countable(const TrainPhase& phase) const {
  constexpr int64_t kMost = int64_t{1} << 40;
  const uint64_t size = orders_.at(phase.turns.front().program).epoch_size();
  if (phase.epochs > kMost || (phase.epochs > 0 && size > static_cast<uint64_t>(kMost / phase.epochs)))
    ddh::fail(DDH_OUT_OF_RANGE, phase.epochs, " epochs of ", size, " samples are too many to count; give fewer epochs");
}

// Epochs: whole rounds of turns, until the program of the first turn has completed its epochs.
int64_t TrainOrder::steps_left(const TrainPosition& at) const {
  const TrainPhase& phase = phases_[place_of(at.phase)];
  if (phase.epochs == 0) return phase.steps - at.phase_step;
  const TrainPhase::Turn& first = phase.turns.front();
  const SampleOrder& order = orders_.at(first.program);
  const uint64_t end = at.phase_begin + static_cast<uint64_t>(phase.epochs) * order.epoch_size();
  const int64_t own = order.steps_until(at.samples[static_cast<size_t>(first.program)], end, cut_of(first));
  const auto is_first = [&](const TrainPhase::Turn& turn) { return turn.program == first.program; };
  const auto n_turns = static_cast<int64_t>(phase.turns.size()), begun = at.phase_step % n_turns;
  const int64_t in_round = std::count_if(phase.turns.begin(), phase.turns.end(), is_first);
  const int64_t before = std::count_if(phase.turns.begin(), phase.turns.begin() + begun, is_first);
  // A round that has begun counts from its first step.
  return (own + before + in_round - 1) / in_round * n_turns - begun;
}

// The last steps of a phase may take samples of the next epoch, but not of the one after it.
bool TrainOrder::is_beyond_epochs(const TrainPosition& at) const {
  const TrainPhase& phase = phases_[place_of(at.phase)];
  const TrainPhase::Turn& first = phase.turns.front();
  const uint64_t size = epoch_size(first.program), round = phase.turns.size() * cut_of(first).per_step();
  const uint64_t end = at.phase_begin + static_cast<uint64_t>(phase.epochs) * size;
  return phase.epochs > 0 && at.samples[static_cast<size_t>(first.program)] >= end + size + round;
}

void TrainOrder::begin_after(TrainPosition position) {
  const auto last_phase = static_cast<int64_t>(phases_.size()) * cycles_ - 1;
  const int64_t left = position.phase > last_phase || is_beyond_epochs(position) ? -1 : steps_left(position);
  if (left < 0)
    ddh::fail(DDH_FAILED_PRECONDITION, "the checkpoint is of step ", position.step, ", but the run ends before it; ",
              "raise train.steps, train.epochs or train.cycles, or resume an earlier checkpoint");
  begin_ = std::move(position);
  begin_.samples.resize(orders_.empty() ? 0 : static_cast<size_t>(orders_.rbegin()->first) + 1);
  first_end_ = begin_.phase_step + left;
  const auto later = steps_.begin() + static_cast<std::ptrdiff_t>(place_of(begin_.phase)) + 1;
  const int64_t later_cycles = (last_phase - begin_.phase) / static_cast<int64_t>(phases_.size());
  last_step_ = begin_.step + left + std::accumulate(later, steps_.end(), int64_t{0}) +
               later_cycles * std::accumulate(steps_.begin(), steps_.end(), int64_t{0});
}

void TrainOrder::begin_phase(TrainPosition& at) const {
  const TrainPhase& phase = phases_[place_of(at.phase)];
  for (const TrainPhase::Turn& turn : phase.turns) {
    uint64_t& samples = at.samples[static_cast<size_t>(turn.program)];
    if (phase.epochs > 0) samples = orders_.at(turn.program).next_epoch(samples);
  }
  at.phase_begin = at.samples[static_cast<size_t>(phase.turns.front().program)];
}

TrainStep TrainOrder::advance(TrainPosition& at) const {
  while (at.phase_step >= end_of(at.phase)) {
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
  const uint64_t size = order.epoch_size(), in_row = static_cast<uint64_t>(every);
  return order.next_position(step.span.first + step.span.count, step.cut) / size / in_row >
         step.span.first / size / in_row;
}

std::vector<int32_t> TrainOrder::programs() const {
  std::vector<int32_t> out;
  for (const auto& [program, order] : orders_) out.push_back(program);
  return out;
}

std::vector<int32_t> TrainOrder::programs_from(int64_t phase) const {
  if (cycles_ > 1) return programs();
  std::set<int32_t> later;
  for (size_t i = place_of(phase); i < phases_.size(); ++i)
    for (const TrainPhase::Turn& turn : phases_[i].turns) later.insert(turn.program);
  return {later.begin(), later.end()};
}

int32_t TrainOrder::program_with_empty() const {
  for (TrainPosition at = begin(); !is_at_end(at);) {
    const TrainStep step = advance(at);
    if (step.span.count + step.cut.micro_batch <= step.cut.per_step()) return step.program;
  }
  return -1;
}

}  // namespace ddhost
