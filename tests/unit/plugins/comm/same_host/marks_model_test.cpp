// SPDX-License-Identifier: Apache-2.0
//
// A model of the marks and rounds of same_host (marks.cpp, group.cpp) and of windows: every interleaving of small worlds
// is tried, with stores that other ranks see late. The model keeps what the protocol rests on:
//
//   - A plain store, and a release store, stay in the rank's buffer until some later time. Stores to one place leave it in
//     order, stores to different places in any order. A release store leaves it after all earlier stores of the rank.
//   - A seq_cst store, and an addition, empty the buffer first. This is weaker than x86, and as weak as ARM for stores.
//   - A sleeper is only woken by FUTEX_WAKE; the real one also wakes after 100 ms, which would hide a lost wake-up.
//
// Each test of a protocol has a mutant of it that must fail.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

namespace {

enum class Do : uint8_t { kStore, kRelease, kSeqCst, kAdd, kAwait, kCheck, kSleepUnless, kWakeIfSleeping };

// One instruction. Places are numbers of shared words.
struct Op {
  Do what;
  uint8_t place;
  uint8_t value;
  uint8_t sleepers = 0;  // of kSleepUnless and kWakeIfSleeping: the place that counts them
};
using Program = std::vector<Op>;

struct Pending {
  uint8_t place, value;
  bool release;
  auto operator<=>(const Pending&) const = default;
};

struct Rank {
  uint8_t at = 0;  // the next instruction
  bool asleep = false;
  std::vector<Pending> buffer;  // stores that others don't see yet
};

class Explorer {
 public:
  Explorer(std::vector<Program> programs, size_t n_places) : programs_(std::move(programs)), n_places_(n_places) {}

  // What can go wrong, or "" if nothing does in any order.
  std::string explore() {
    State start;
    start.memory.assign(n_places_, 0);
    start.ranks.resize(programs_.size());
    std::vector<State> open = {start};
    seen_.insert(key(start));
    while (!open.empty() && wrong_.empty()) {
      const State state = std::move(open.back());
      open.pop_back();
      bool moved = false, ended = true;
      for (size_t r = 0; r < programs_.size(); ++r) {
        ended = ended && state.ranks[r].at == programs_[r].size();
        for_each_step(state, r, [&](State next) {
          moved = true;
          if (seen_.insert(key(next)).second) open.push_back(std::move(next));
        });
      }
      if (!moved && !ended && wrong_.empty()) wrong_ = "a rank waits for ever";
    }
    return wrong_;
  }
  [[nodiscard]] size_t states() const { return seen_.size(); }

 private:
  struct State {
    std::vector<uint8_t> memory;
    std::vector<Rank> ranks;
  };

  static std::string key(const State& s) {
    std::string out(s.memory.begin(), s.memory.end());
    for (const Rank& rank : s.ranks) {
      out += {static_cast<char>(rank.at), static_cast<char>(rank.asleep), static_cast<char>(rank.buffer.size())};
      for (const Pending& p : rank.buffer)
        out += {static_cast<char>(p.place), static_cast<char>(p.value), static_cast<char>(p.release)};
    }
    return out;
  }

  // What the rank itself reads: its own newest store, else the memory.
  static uint8_t seen_by(const State& s, size_t r, uint8_t place) {
    const std::vector<Pending>& buffer = s.ranks[r].buffer;
    for (auto it = buffer.rbegin(); it != buffer.rend(); ++it)
      if (it->place == place) return it->value;
    return s.memory[place];
  }

  // Whether the store may leave the buffer now.
  static bool may_leave(const std::vector<Pending>& buffer, size_t i) {
    if (buffer[i].release) return i == 0;
    return std::none_of(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(i),
                        [&](const Pending& earlier) { return earlier.place == buffer[i].place; });
  }

  template <class Visit>
  void for_each_step(const State& state, size_t r, const Visit& visit) {
    const std::vector<Pending>& buffer = state.ranks[r].buffer;
    for (size_t i = 0; i < buffer.size(); ++i) {
      if (!may_leave(buffer, i)) continue;
      State next = state;
      next.memory[buffer[i].place] = buffer[i].value;
      next.ranks[r].buffer.erase(next.ranks[r].buffer.begin() + static_cast<std::ptrdiff_t>(i));
      visit(std::move(next));
    }
    if (state.ranks[r].asleep || state.ranks[r].at == programs_[r].size()) return;
    const Op& op = programs_[r][state.ranks[r].at];
    const bool needs_empty = op.what == Do::kSeqCst || op.what == Do::kAdd;
    if (needs_empty && !buffer.empty()) return;
    State next = state;
    if (run(op, r, next)) visit(std::move(next));
  }

  // Runs an instruction; false: it can't go on yet.
  bool run(const Op& op, size_t r, State& s) {
    Rank& me = s.ranks[r];
    switch (op.what) {
      case Do::kStore:
      case Do::kRelease:
        me.buffer.push_back({op.place, op.value, op.what == Do::kRelease});
        break;
      case Do::kSeqCst:
        s.memory[op.place] = op.value;
        break;
      case Do::kAdd:
        s.memory[op.place] = static_cast<uint8_t>(s.memory[op.place] + op.value);
        break;
      case Do::kAwait:
        if (seen_by(s, r, op.place) < op.value) return false;
        break;
      case Do::kCheck:
        if (seen_by(s, r, op.place) != op.value)
          wrong_ = "rank " + std::to_string(r) + " reads " + std::to_string(seen_by(s, r, op.place)) + " instead of " +
                   std::to_string(op.value);
        break;
      case Do::kSleepUnless:
        // FUTEX_WAIT compares and sleeps as one. Here the compared value is the one just read: if it were older, the
        // call would return at once, and the loop would read again.
        if (s.memory[op.place] < op.value) {
          me.asleep = true;
          return true;  // when it is woken it runs this instruction again
        }
        break;
      case Do::kWakeIfSleeping:
        if (seen_by(s, r, op.sleepers) == 0) break;
        for (size_t other = 0; other < s.ranks.size(); ++other) {
          Rank& rank = s.ranks[other];
          if (rank.asleep && programs_[other][rank.at].place == op.place) rank.asleep = false;
        }
        break;
    }
    ++me.at;
    return true;
  }

  const std::vector<Program> programs_;
  const size_t n_places_;
  std::unordered_set<std::string> seen_;
  std::string wrong_;
};

// How a rank raises a mark, and waits for one. `sleepers`: the place that counts the sleepers of the mark.
struct Marks {
  Do raise = Do::kRelease;
  bool sleeps = false;          // else a wait only spins
  bool counts_sleepers = true;  // in one order with the mark, as in mark_sleep
};

class Writer {
 public:
  explicit Writer(Marks marks) : marks_(marks) {}

  void store(uint8_t place, uint8_t value) { out.push_back({Do::kStore, place, value}); }
  void check(uint8_t place, uint8_t value) { out.push_back({Do::kCheck, place, value}); }
  void raise(uint8_t mark, uint8_t value, uint8_t sleepers) {
    out.push_back({marks_.raise, mark, value});
    if (marks_.sleeps) out.push_back({Do::kWakeIfSleeping, mark, value, sleepers});
  }
  void wait(uint8_t mark, uint8_t value, uint8_t sleepers) {
    if (!marks_.sleeps) return out.push_back({Do::kAwait, mark, value});
    out.push_back({marks_.counts_sleepers ? Do::kAdd : Do::kStore, sleepers, 1});
    out.push_back({Do::kSleepUnless, mark, value, sleepers});
    out.push_back({Do::kAdd, sleepers, marks_.counts_sleepers ? uint8_t{0xFF} : uint8_t{0}});
  }

  Program out;

 private:
  const Marks marks_;
};

// Places of a world: per rank two halves of staging, two marks, and the sleepers of each mark.
struct Places {
  static constexpr uint8_t kPerRank = 6;
  static uint8_t half(int rank, int round) { return at(rank, round & 1); }
  static uint8_t segment(int rank) { return at(rank, 0); }
  static uint8_t published(int rank) { return at(rank, 2); }
  static uint8_t consumed(int rank) { return at(rank, 3); }
  static uint8_t sleepers(uint8_t mark) { return static_cast<uint8_t>(mark + 2); }

 private:
  static uint8_t at(int rank, int what) { return static_cast<uint8_t>(rank * kPerRank + what); }
};

// The rounds of Group: a half is written again two rounds later, after every peer has consumed it. `one_half`: in every round.
Program rounds(int rank, int world, int n_rounds, Marks marks, bool one_half = false) {
  Writer w(marks);
  const auto wait_peers = [&](auto&& mark_of, int value) {
    for (int peer = 0; peer < world; ++peer)
      if (peer != rank) w.wait(mark_of(peer), static_cast<uint8_t>(value), Places::sleepers(mark_of(peer)));
  };
  for (int round = 1; round <= n_rounds; ++round) {
    if (round > 2) wait_peers(Places::consumed, round - 2);
    const auto half = [&](int r) { return one_half ? Places::segment(r) : Places::half(r, round); };
    w.store(half(rank), static_cast<uint8_t>(round));
    const uint8_t published = Places::published(rank), consumed = Places::consumed(rank);
    w.raise(published, static_cast<uint8_t>(round), Places::sleepers(published));
    wait_peers(Places::published, round);
    for (int peer = 0; peer < world; ++peer) w.check(half(peer), static_cast<uint8_t>(round));
    w.raise(consumed, static_cast<uint8_t>(round), Places::sleepers(consumed));
  }
  return w.out;
}

// A window: one segment for each rank, which is written again after every rank has closed it. `early`: the writer does not
// wait for the others' close.
Program window(int rank, int world, int n_epochs, Marks marks, bool early = false) {
  Writer w(marks);
  for (int epoch = 1; epoch <= n_epochs; ++epoch) {
    for (int peer = 0; peer < world && !early; ++peer)
      w.wait(Places::consumed(peer), static_cast<uint8_t>(epoch - 1), Places::sleepers(Places::consumed(peer)));
    w.store(Places::segment(rank), static_cast<uint8_t>(epoch));
    w.raise(Places::published(rank), static_cast<uint8_t>(epoch), Places::sleepers(Places::published(rank)));
    for (int peer = 0; peer < world; ++peer)
      w.wait(Places::published(peer), static_cast<uint8_t>(epoch), Places::sleepers(Places::published(peer)));
    for (int peer = 0; peer < world; ++peer) w.check(Places::segment(peer), static_cast<uint8_t>(epoch));
    w.raise(Places::consumed(rank), static_cast<uint8_t>(epoch), Places::sleepers(Places::consumed(rank)));
  }
  return w.out;
}

template <class ProgramOf>
std::string explore(int world, const ProgramOf& program_of) {
  std::vector<Program> programs;
  for (int rank = 0; rank < world; ++rank) programs.push_back(program_of(rank));
  Explorer explorer(std::move(programs), static_cast<size_t>(world) * Places::kPerRank);
  const std::string wrong = explorer.explore();
  UNSCOPED_INFO(explorer.states() << " states");
  return wrong;
}

// A sleeper's protocol has a seq_cst raise.
constexpr Marks kSpinning{.raise = Do::kRelease}, kSleeping{.raise = Do::kSeqCst, .sleeps = true};

}  // namespace

TEST_CASE("rounds deliver every rank's data in every order of two to four ranks") {
  CHECK(explore(2, [](int rank) { return rounds(rank, 2, 12, kSpinning); }) == "");
  CHECK(explore(3, [](int rank) { return rounds(rank, 3, 6, kSpinning); }) == "");
  CHECK(explore(4, [](int rank) { return rounds(rank, 4, 3, kSpinning); }) == "");
}

TEST_CASE("rounds whose marks are no release stores deliver old data") {
  const Marks relaxed{.raise = Do::kStore};
  CHECK(explore(2, [&](int rank) { return rounds(rank, 2, 2, relaxed); }) == "rank 1 reads 0 instead of 1");
}

TEST_CASE("rounds that write a half before its readers are done destroy data") {
  CHECK_THAT(explore(2, [](int rank) { return rounds(rank, 2, 3, kSpinning, true); }), Catch::Contains("instead of"));
}

TEST_CASE("windows deliver every epoch in every order, and not if a writer is early") {
  CHECK(explore(2, [](int rank) { return window(rank, 2, 12, kSpinning); }) == "");
  CHECK(explore(3, [](int rank) { return window(rank, 3, 6, kSpinning); }) == "");
  CHECK_THAT(explore(2, [](int rank) { return window(rank, 2, 3, kSpinning, true); }), Catch::Contains("instead of"));
}

TEST_CASE("no order of raising and sleeping loses a wake-up") {
  CHECK(explore(2, [](int rank) { return rounds(rank, 2, 8, kSleeping); }) == "");
  CHECK(explore(2, [](int rank) { return window(rank, 2, 8, kSleeping); }) == "");
  CHECK(explore(3, [](int rank) { return rounds(rank, 3, 3, kSleeping); }) == "");
}

TEST_CASE("a wake-up is lost if the raise or the count of sleepers is not in one order with the other") {
  const Marks late_raise{.raise = Do::kRelease, .sleeps = true};
  CHECK(explore(2, [&](int rank) { return rounds(rank, 2, 1, late_raise); }) == "a rank waits for ever");
  const Marks late_count{.raise = Do::kSeqCst, .sleeps = true, .counts_sleepers = false};
  CHECK(explore(2, [&](int rank) { return rounds(rank, 2, 1, late_count); }) == "a rank waits for ever");
}
