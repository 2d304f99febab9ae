// SPDX-License-Identifier: Apache-2.0
#include "launch/standstill.hpp"

#include <algorithm>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

using std::chrono::milliseconds;
using RankState = Watchdog::RankState;

milliseconds between(Standstill::Clock::time_point begin, Standstill::Clock::time_point end) {
  return std::chrono::duration_cast<milliseconds>(end - begin);
}

}  // namespace

Standstill::Standstill(const Progress& progress, int world_size, milliseconds grace)
    : progress_(progress), grace_(grace), ranks_(static_cast<size_t>(world_size)) {
  for (Rank& rank : ranks_) {
    rank.frames.resize(kRankThreads * CallLane::kDepth);
    rank.calls.resize(kRankThreads);
  }
}

std::optional<milliseconds> Standstill::interval() const {
  if (grace_.count() == 0) return std::nullopt;
  return std::clamp(grace_ / 10, milliseconds{20}, milliseconds{1000});
}

// The time in which a rank was stopped is not the length of a call.
void Standstill::set_state(int rank, RankState state, Clock::time_point now) {
  Rank& of = ranks_[static_cast<size_t>(rank)];
  of.state = state;
  of.changed = now;
  for (Call& call : of.calls) {
    call.since = of.changed;
    call.waited.reset();
  }
}

void Standstill::follow(int rank, Clock::time_point now) {
  Rank& of = ranks_[static_cast<size_t>(rank)];
  for (size_t t = 0; t < kRankThreads; ++t) {
    const CallLane& lane = progress_.lane(rank, static_cast<RankThread>(t));
    for (size_t depth = 0; depth < CallLane::kDepth; ++depth) {
      const CallFrame frame = lane.frame(depth);
      CallFrame& known = of.frames[t * CallLane::kDepth + depth];
      if (frame == known) continue;
      known = frame;
      of.changed = now;
      if (depth > 0) continue;
      Call& call = of.calls[t];
      if (call.frame.serial != 0 && !is_preparation(call.frame.call))
        longest_ = std::max(longest_, between(call.since, call.waited.value_or(now)));
      call = {frame, last_look_.value_or(now), std::nullopt};
    }
  }
  Call& of_training = of.calls[0];
  if (!of_training.waited && progress_.waits(rank)) of_training.waited = now;
}

void Standstill::forget_pause(Clock::time_point now) {
  const milliseconds gap = pause_before(now, last_look_, *interval());
  for (Rank& rank : ranks_) {
    rank.changed += gap;
    for (Call& call : rank.calls) {
      call.since += gap;
      if (call.waited) *call.waited += gap;
    }
  }
}

// Where a rank stands: in a call that waits for no other rank, or anywhere if a signal has stopped it. The host's own code,
// such as a save, takes as long as the disk does.
std::optional<std::string> Standstill::place_of(int rank) const {
  std::string place;
  if (!progress_.waits(rank)) place = progress_.place(rank);
  for (size_t i = 0; i < kDataThreads && place.empty(); ++i) place = progress_.place(rank, data_thread(i));
  if (ranks_[static_cast<size_t>(rank)].state == RankState::kStopped) {
    if (place.empty()) place = progress_.place(rank);
    return "stopped by a signal" + (place.empty() ? "" : ", in " + place);
  }
  return place.empty() ? std::nullopt : std::optional("in " + place);
}

std::string Standstill::sentence(const std::vector<std::string>& ranks) const {
  constexpr size_t kShown = 8;
  std::string who;
  for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i) who += (i == 0 ? "" : ", ") + ranks[i];
  if (ranks.size() > kShown) who += ddh::str(" and ", ranks.size() - kShown, " more");
  const bool by_longest = longest_ > grace_;
  return ddh::str(who, ranks.size() == 1 ? " has" : " have", " neither begun nor ended a plugin call for ",
                  seconds_text(limit()), " after the signal, so the ranks were killed; raise launch.grace (",
                  seconds_text(grace_), by_longest ? ", or the run's longest call of " + seconds_text(longest_) : "",
                  ") if that is too short for a call of this run");
}

std::string Standstill::look(Clock::time_point now, std::optional<Clock::time_point> stopped_at) {
  if (grace_.count() == 0) return "";
  forget_pause(now);
  const int world = static_cast<int>(ranks_.size());
  for (int rank = 0; rank < world; ++rank) follow(rank, now);
  last_look_ = now;
  if (!stopped_at) return "";
  if (!is_stopped_)
    for (Rank& rank : ranks_) rank.changed = std::max(rank.changed, *stopped_at);
  is_stopped_ = true;

  std::vector<std::string> still, waiting;
  bool others_may_go_on = false;
  for (int rank = 0; rank < world; ++rank) {
    const Rank& of = ranks_[static_cast<size_t>(rank)];
    if (of.state == RankState::kEnded || progress_.is_complete(rank)) continue;
    const bool is_still = between(of.changed, now) >= limit();
    const std::optional<std::string> place = place_of(rank);
    if (is_still && place)
      still.push_back(ddh::str("rank ", rank, " (", *place, ")"));
    else if (is_still && progress_.waits(rank))
      waiting.push_back(ddh::str("rank ", rank, " (waiting in ", progress_.place(rank), ")"));
    else
      others_may_go_on = true;
  }
  if (!still.empty()) return sentence(still);
  return others_may_go_on || waiting.empty() ? "" : sentence(waiting);
}

}  // namespace ddhost
