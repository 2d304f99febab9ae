// SPDX-License-Identifier: Apache-2.0
#include "launch/watchdog.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "ddh/sdk/plugin.hpp"
#include "launch/loader_record.hpp"

namespace ddhost {
namespace {

using std::chrono::milliseconds;
using RankState = Watchdog::RankState;

// The factor on the notice limit for calls that prepare the run (create, attach ...), and for loading.
constexpr int kPreparationFactor = 3;

constexpr uint32_t kStoppedSerial = 1;

milliseconds age_of(std::chrono::steady_clock::time_point since, std::chrono::steady_clock::time_point now) {
  return std::chrono::duration_cast<milliseconds>(now - since);
}

std::string numbers(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == 8) return ddh::str(text, " and ", ranks.size() - i, " more");
    text += ddh::str(i == 0 ? "" : ", ", ranks[i]);
  }
  return text;
}

// "12 s".
std::string seconds_text(milliseconds time) {
  const int64_t ms = time.count();
  return ms >= 10000 || ms % 1000 == 0 ? ddh::str(ms / 1000, " s") : ddh::str(ms / 1000, ".", ms % 1000 / 100, " s");
}

// The time since the last look if it is so long that this process and the ranks were stopped (Ctrl-Z); else 0.
milliseconds pause_before(std::chrono::steady_clock::time_point now,
                          std::optional<std::chrono::steady_clock::time_point> last_look, milliseconds interval) {
  constexpr int kMissedLooks = 10;
  const milliseconds gap = last_look ? age_of(*last_look, now) : milliseconds{0};
  return gap < kMissedLooks * interval ? milliseconds{0} : gap;
}

// The text that follows the message about a call that lasted too long.
std::string abort_reason(const WatchdogLimits& limits) {
  return ddh::str("; the run has ended (run.watchdog_abort=", seconds_text(limits.abort),
                  "); fix the plugin, or raise run.watchdog_abort (0: no limit)");
}

}  // namespace

Watchdog::Watchdog(const Progress& progress, int world_size, WatchdogLimits limits)
    : progress_(progress), limits_(limits), ranks_(static_cast<size_t>(world_size)) {}

std::optional<milliseconds> Watchdog::interval() const {
  if (limits_.notice.count() == 0) return std::nullopt;
  return std::clamp(limits_.notice / 5, milliseconds{20}, milliseconds{1000});
}

milliseconds Watchdog::limit_of(const CallFrame& frame) const {
  return limits_.notice * (is_preparation(frame.call) ? kPreparationFactor : 1);
}

void Watchdog::follow(Watched& watched, const CallFrame& now_in, Clock::time_point now) const {
  if (watched.frame == now_in) return;
  watched = {now_in, now, limit_of(now_in)};
}

// Such a rank is not the cause.
bool Watchdog::waits(int rank) const { return progress_.waits(rank); }

bool Watchdog::has_ended(int rank) const {
  return ranks_[static_cast<size_t>(rank)].state == RankState::kEnded || progress_.is_complete(rank);
}

std::vector<Watchdog::Suspect> Watchdog::suspects(Clock::time_point now) {
  std::vector<Suspect> out;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    const int number = static_cast<int>(r);
    const bool stopped = rank.state == RankState::kStopped;
    follow(rank.stop, stopped ? CallFrame{kStoppedSerial} : CallFrame{}, now);
    for (size_t t = 0; t < kRankThreads; ++t)
      follow(rank.threads[t], progress_.lane(number, static_cast<RankThread>(t)).frame(0), now);
    if (has_ended(number)) continue;
    if (stopped) {
      const std::string place = progress_.place(number);
      const std::string where = place.empty() ? "" : ", in " + place;
      out.push_back({number, &rank.stop, ddh::str("rank ", number, " is stopped by a signal", where, ", for "),
                     age_of(rank.stop.since, now), limits_.notice});
      continue;
    }
    for (size_t t = 0; t < kRankThreads; ++t) {
      Watched& watched = rank.threads[t];
      const auto thread = static_cast<RankThread>(t);
      if (watched.frame.serial == 0 || progress_.waits(number, thread)) continue;
      out.push_back({number, &watched,
                     ddh::str("rank ", number, " has been in ", progress_.place(number, thread), " for "),
                     age_of(watched.since, now), limit_of(watched.frame)});
    }
  }
  return out;
}

// "; ranks 0, 2 wait for it in step of strategy 'x'".
std::string Watchdog::waiting(int except) const {
  std::map<std::string, std::vector<int>> by_place;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (rank == except || ranks_[r].state != RankState::kRunning || !waits(rank)) continue;
    by_place[progress_.place(rank)].push_back(rank);
  }
  std::string text;
  for (const auto& [place, ranks] : by_place)
    text += ddh::str("; ", numbers(ranks), ranks.size() == 1 ? " waits for it in " : " wait for it in ", place);
  return text;
}

void Watchdog::judge(News& news, Suspect& suspect) const {
  const std::string sentence = suspect.sentence + seconds_text(suspect.age) + waiting(suspect.rank);
  if (limits_.abort.count() > 0 && suspect.age >= limits_.abort) {
    news.end = sentence + abort_reason(limits_);
    return;
  }
  if (suspect.age < suspect.watched->next_notice) return;
  while (suspect.watched->next_notice <= suspect.age) suspect.watched->next_notice *= 2;
  news.notices.push_back(sentence);
}

// Every rank waits for others, or for a rank that is not in a plugin.
void Watchdog::judge_waits(News& news, Clock::time_point now) {
  int oldest = -1, free = -1;
  milliseconds age{0};
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (has_ended(rank)) continue;
    if (!waits(rank)) {
      free = rank;
      continue;
    }
    const milliseconds mine = age_of(ranks_[r].threads[0].since, now);
    if (oldest >= 0 && mine <= age) continue;
    oldest = rank;
    age = mine;
  }
  if (oldest < 0) return;
  Watched& watched = ranks_[static_cast<size_t>(oldest)].threads[0];
  if (age < limit_of(watched.frame)) return;
  const std::string what =
      free < 0 && has_others_ ? "; every rank of this host waits, so a rank of another host is the cause"
      : free < 0
          ? "; every rank waits for another one, probably because not all ranks made the same calls" + waiting(oldest)
          : ddh::str("; it waits for rank ", free, ", which is in the host's code, not in a plugin");
  const std::string sentence =
      ddh::str("rank ", oldest, " has been in ", progress_.place(oldest), " for ", seconds_text(age), what);
  const bool may_end = free < 0 && !has_others_ && limits_.abort.count() > 0;
  if (may_end && age >= limits_.abort) {
    news.end = sentence + abort_reason(limits_);
    return;
  }
  if (age < watched.next_notice) return;
  while (watched.next_notice <= age) watched.next_notice *= 2;
  news.notices.push_back(sentence);
}

// The time in which all were stopped does not count.
void Watchdog::forget_pause(Clock::time_point now) {
  const milliseconds gap = pause_before(now, std::exchange(last_look_, now), *interval());
  for (Rank& rank : ranks_) {
    for (Watched& watched : rank.threads) watched.since += gap;
    rank.stop.since += gap;
  }
}

Watchdog::News Watchdog::look(Clock::time_point now) {
  News news;
  if (limits_.notice.count() == 0) return news;
  forget_pause(now);
  std::vector<Suspect> all = suspects(now);
  for (Suspect& suspect : all) {
    if (suspect.age >= suspect.limit || (limits_.abort.count() > 0 && suspect.age >= limits_.abort))
      judge(news, suspect);
    if (!news.end.empty()) return news;
  }
  if (all.empty()) judge_waits(news, now);
  return news;
}

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
        longest_ = std::max(longest_, age_of(call.since, call.waited.value_or(now)));
      call = {frame, last_look_.value_or(now), std::nullopt};
    }
  }
  for (size_t t = 0; t < kRankThreads; ++t)
    if (!of.calls[t].waited && progress_.waits(rank, static_cast<RankThread>(t))) of.calls[t].waited = now;
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
  const bool by_longest = limit() > grace_;
  return ddh::str(who, ranks.size() == 1 ? " has" : " have", " neither begun nor ended a plugin call for ",
                  seconds_text(limit()), " after the signal, so the ranks were killed; raise launch.grace (",
                  seconds_text(grace_),
                  by_longest ? ", or 1.5 times the run's longest call of " + seconds_text(longest_) : "",
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
    const bool is_still = age_of(of.changed, now) >= limit();
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

Watchdog::News LoadWatch::look(Watchdog::Clock::time_point now) {
  Watchdog::News news;
  if (limits_.notice.count() == 0) return news;
  if (const uint32_t current = record_.current_load(); current != load_) {
    load_ = current;
    since_ = now;
    notice_ = limits_.notice * kPreparationFactor;
  }
  if (load_ == 0) return news;
  const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - since_);
  const std::string sentence = ddh::str(record_.loading(), " has taken ", seconds_text(age), " so far");
  if (limits_.abort.count() > 0 && age >= limits_.abort) {
    news.end = sentence + abort_reason(limits_);
  } else if (age >= notice_) {
    news.notices.push_back(sentence);
    while (notice_ <= age) notice_ *= 2;
  }
  return news;
}

}  // namespace ddhost
