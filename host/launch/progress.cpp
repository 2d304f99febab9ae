// SPDX-License-Identifier: Apache-2.0
//
// launch/progress.cpp: shared anonymous pages; only lock-free atomics and plain bytes published by them.
#include "launch/progress.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <thread>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {
constexpr size_t kPage = 4096;

// Fills a C string without allocating.
class Text {
 public:
  Text(char* text, size_t capacity) : at_(text), left_(capacity) {
    if (left_ > 0) *at_ = '\0';
  }
  void add(const char* more) {
    for (; *more != '\0' && left_ > 1; ++more, --left_) *at_++ = *more;
    if (left_ > 0) *at_ = '\0';
  }
  void add(int32_t number) {
    std::array<char, 12> digits{};
    size_t first = digits.size() - 1;
    for (uint32_t n = static_cast<uint32_t>(number < 0 ? 0 : number); first > 0 && (n > 0 || digits[first] == '\0');
         n /= 10)
      digits[--first] = static_cast<char>('0' + n % 10);
    add(&digits[first]);
  }

 private:
  char* at_;
  size_t left_;
};
}  // namespace

// The first page.
struct Progress::World {
  std::atomic<uint32_t> stop{0};
  std::atomic<uint32_t> names_stop{0};
  std::atomic<int64_t> last_step{-1};  // -1: not named yet
  std::atomic<uint32_t> failures{0};
  std::atomic<int64_t> saves{0};
  std::atomic<uint32_t> shortage_kind{0};  // not 0: the bytes are complete
  std::atomic<uint64_t> shortage_bytes{0};
  std::atomic<uint32_t> shortage_ranks{0};
  std::array<char, 2048> shortage_changes{};
  std::atomic<uint32_t> plan_claimed{0};
  std::atomic<uint32_t> plan_bytes{0};  // not 0: the plan is complete
  std::array<char, 1024> plan{};
};

// The names of the model's units, one after another, for messages. Units whose names do not fit are identified by
// number.
struct alignas(kPage) Progress::Units {
  std::atomic<uint32_t> claimed{0};
  std::atomic<uint32_t> count{0};  // names that are complete
  char names[16 * kPage - 64] = {};
};

// Separate pages, so that ranks never share a cache line.
struct alignas(kPage) Progress::Rank {
  static constexpr size_t kPlugins = 24;
  static constexpr size_t kNameBytes = 96;

  std::atomic<int64_t> step{0};
  std::atomic<int64_t> may_begin{0};  // a step, of a rank that asks for the last one
  std::atomic<uint32_t> begun{0};
  std::atomic<int32_t> process{0};
  std::atomic<uint32_t> complete{0}, done{0};
  std::atomic<uint32_t> claimed{0};  // the first failure of the rank takes the slot
  std::atomic<uint32_t> order{0};    // not 0: the slot is complete
  uint32_t caused_by_peer = 0;
  char sentence[kPage - 64] = {};
  struct alignas(64) Lane {
    CallLane calls;
  };
  Lane lanes[kRankThreads];
  std::atomic<uint32_t> n_plugins{0};
  char plugins[kPlugins][kNameBytes] = {};
  std::array<std::atomic<uint64_t>, RankNumbers::kTags> planned_bytes{}, peak_bytes{};
  std::array<std::atomic<double>, RankNumbers::kKinds> time_ms{};
};

Progress::Progress(int world_size) : world_size_(world_size) {
  static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);
  static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<double>::is_always_lock_free);
  static_assert(sizeof(Rank) % kPage == 0 && sizeof(World) <= kPage);
  bytes_ = kPage + sizeof(Units) + sizeof(Rank) * static_cast<size_t>(world_size);
  pages_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (pages_ == MAP_FAILED)
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "can't allocate memory for the progress of ", world_size,
              " ranks: ", std::strerror(errno));
  new (pages_) World;
  new (&units()) Units;
  for (int rank = 0; rank < world_size; ++rank) new (&at(rank)) Rank;
}

Progress::~Progress() { ::munmap(pages_, bytes_); }

Progress::Rank& Progress::at(int rank) const {
  if (rank < 0 || rank >= world_size_) ddh::fail(DDH_OUT_OF_RANGE, "rank ", rank, " of ", world_size_);
  return *reinterpret_cast<Rank*>(static_cast<char*>(pages_) + kPage + sizeof(Units) +
                                  sizeof(Rank) * static_cast<size_t>(rank));
}

Progress::World& Progress::world() const { return *static_cast<World*>(pages_); }
Progress::Units& Progress::units() const { return *reinterpret_cast<Units*>(static_cast<char*>(pages_) + kPage); }

void Progress::set_step(int rank, int64_t step) { at(rank).step.store(step, std::memory_order_relaxed); }
int64_t Progress::step(int rank) const { return at(rank).step.load(std::memory_order_relaxed); }

void Progress::set_begun(int rank) { at(rank).begun.store(1, std::memory_order_relaxed); }
bool Progress::has_begun(int rank) const {
  return step(rank) > 0 || at(rank).begun.load(std::memory_order_relaxed) != 0;
}
void Progress::set_done(int rank) { at(rank).done.store(1, std::memory_order_relaxed); }
bool Progress::is_done(int rank) const { return at(rank).done.load(std::memory_order_relaxed) != 0; }
void Progress::set_process(int rank, int32_t pid) { at(rank).process.store(pid, std::memory_order_release); }
int32_t Progress::process(int rank) const { return at(rank).process.load(std::memory_order_acquire); }

void Progress::set_failure(int rank, std::string_view sentence, bool caused_by_peer) {
  Rank& slot = at(rank);
  if (slot.claimed.exchange(1) != 0) return;
  const size_t bytes = std::min(sentence.size(), sizeof slot.sentence - 1);
  std::memcpy(slot.sentence, sentence.data(), bytes);
  slot.caused_by_peer = caused_by_peer ? 1 : 0;
  slot.order.store(world().failures.fetch_add(1) + 1, std::memory_order_release);
}

Progress::Failure Progress::failure(int rank) const {
  const Rank& slot = at(rank);
  const uint32_t order = slot.order.load(std::memory_order_acquire);
  if (order == 0) return {};
  return {slot.sentence, slot.caused_by_peer != 0, order};
}

void Progress::set_shortage(const Shortage& shortage) {
  world().shortage_bytes.store(shortage.bytes_left, std::memory_order_relaxed);
  world().shortage_ranks.store(shortage.n_ranks, std::memory_order_relaxed);
  auto& changes = world().shortage_changes;
  if (shortage.changes.size() < changes.size()) shortage.changes.copy(changes.data(), changes.size() - 1);
  world().shortage_kind.store(static_cast<uint32_t>(shortage.kind), std::memory_order_release);
}
std::optional<Shortage> Progress::shortage() const {
  const uint32_t kind = world().shortage_kind.load(std::memory_order_acquire);
  if (kind == 0) return std::nullopt;
  return Shortage{static_cast<MemoryKind>(kind), world().shortage_bytes.load(std::memory_order_relaxed),
                  world().shortage_ranks.load(std::memory_order_relaxed), world().shortage_changes.data()};
}

void Progress::set_complete(int rank) { at(rank).complete.store(1, std::memory_order_release); }
bool Progress::is_complete(int rank) const { return at(rank).complete.load(std::memory_order_acquire) != 0; }

CallLane& Progress::lane(int rank, RankThread thread) const {
  return at(rank).lanes[static_cast<size_t>(thread)].calls;
}

bool Progress::waits(int rank, RankThread thread) const {
  const CallLane& calls = lane(rank, thread);
  for (size_t depth = 0; depth < CallLane::kDepth; ++depth)
    if (waits_for_ranks(calls.frame(depth).call)) return true;
  return false;
}

uint8_t Progress::add_plugin(int rank, std::string_view name) {
  Rank& page = at(rank);
  const std::string_view shown = name.substr(0, Rank::kNameBytes - 1);
  const uint32_t count = page.n_plugins.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < count; ++i)
    if (shown == page.plugins[i]) return static_cast<uint8_t>(i);
  if (count == Rank::kPlugins) return UINT8_MAX;
  std::memcpy(page.plugins[count], shown.data(), shown.size());
  page.n_plugins.store(count + 1, std::memory_order_release);
  return static_cast<uint8_t>(count);
}

void Progress::set_unit_names(const char* const* names, size_t count) {
  Units& to = units();
  if (to.claimed.exchange(1) != 0) return;
  size_t used = 0;
  uint32_t kept = 0;
  for (; kept < count; ++kept) {
    const size_t bytes = std::strlen(names[kept]) + 1;
    if (bytes > sizeof to.names - used) break;
    std::memcpy(to.names + used, names[kept], bytes);
    used += bytes;
  }
  to.count.store(kept, std::memory_order_release);
}

void Progress::set_plan(std::string_view text) {
  World& to = world();
  if (to.plan_claimed.exchange(1) != 0) return;
  const size_t bytes = std::min(text.size(), to.plan.size());
  std::memcpy(to.plan.data(), text.data(), bytes);
  to.plan_bytes.store(static_cast<uint32_t>(bytes), std::memory_order_release);
}

std::string Progress::plan() const {
  const uint32_t bytes = world().plan_bytes.load(std::memory_order_acquire);
  return {world().plan.data(), bytes};
}

void Progress::set_planned(int rank, const std::array<uint64_t, RankNumbers::kTags>& bytes) {
  for (size_t tag = 0; tag < bytes.size(); ++tag)
    at(rank).planned_bytes[tag].store(bytes[tag], std::memory_order_relaxed);
}
std::array<uint64_t, RankNumbers::kTags> Progress::planned(int rank) const {
  std::array<uint64_t, RankNumbers::kTags> out{};
  for (size_t tag = 0; tag < out.size(); ++tag) out[tag] = at(rank).planned_bytes[tag].load(std::memory_order_relaxed);
  return out;
}

void Progress::set_numbers(int rank, const RankNumbers& numbers) {
  Rank& to = at(rank);
  for (size_t tag = 0; tag < RankNumbers::kTags; ++tag)
    to.peak_bytes[tag].store(numbers.peak_bytes[tag], std::memory_order_relaxed);
  for (size_t kind = 0; kind < RankNumbers::kKinds; ++kind)
    to.time_ms[kind].store(numbers.time_ms[kind], std::memory_order_relaxed);
}
RankNumbers Progress::numbers(int rank) const {
  const Rank& from = at(rank);
  RankNumbers out;
  for (size_t tag = 0; tag < RankNumbers::kTags; ++tag)
    out.peak_bytes[tag] = from.peak_bytes[tag].load(std::memory_order_relaxed);
  for (size_t kind = 0; kind < RankNumbers::kKinds; ++kind)
    out.time_ms[kind] = from.time_ms[kind].load(std::memory_order_relaxed);
  return out;
}

void Progress::write_call(int rank, const CallFrame& frame, char* text, size_t capacity) const {
  Text out(text, capacity);
  out.add(call_name(frame.call));
  if (frame.unit >= 0) {
    const Units& known = units();
    out.add(" of unit ");
    if (static_cast<uint32_t>(frame.unit) < known.count.load(std::memory_order_acquire)) {
      const char* name = known.names;
      for (int32_t i = 0; i < frame.unit; ++i) name += std::strlen(name) + 1;
      out.add("'");
      out.add(name);
      out.add("'");
    } else {
      out.add(frame.unit);
    }
  }
  const Rank& page = at(rank);
  out.add(" of ");
  out.add(frame.plugin < page.n_plugins.load(std::memory_order_acquire) ? page.plugins[frame.plugin] : "a plugin");
}

void Progress::write_place(int rank, RankThread thread, char* text, size_t capacity) const {
  const CallLane& calls = lane(rank, thread);
  const CallFrame outer = calls.frame(0);
  CallFrame inner = outer;
  for (size_t depth = 1; depth < CallLane::kDepth && calls.frame(depth).serial != 0; ++depth)
    inner = calls.frame(depth);
  Text out(text, capacity);
  if (outer.serial == 0) return;
  std::array<char, 384> one{};
  write_call(rank, inner, one.data(), one.size());
  out.add(one.data());
  if (inner == outer) return;
  write_call(rank, outer, one.data(), one.size());
  out.add(" (in ");
  out.add(one.data());
  out.add(")");
}

std::string Progress::place(int rank, RankThread thread) const {
  std::array<char, 800> text{};
  write_place(rank, thread, text.data(), text.size());
  return text.data();
}

std::string Progress::call_text(int rank, const CallFrame& frame) const {
  std::array<char, 384> text{};
  write_call(rank, frame, text.data(), text.size());
  return text.data();
}

void Progress::request_stop() { world().stop.store(1, std::memory_order_relaxed); }
bool Progress::stop_requested() const { return world().stop.load(std::memory_order_relaxed) != 0; }

// A rank writes the step that it may begin, and then looks whether the launcher names the last one. The launcher says that it
// does, and then reads those steps. Of a rank and the launcher at least one sees the other's value (sequential consistency), so
// no rank begins a step after the one that is named.
void Progress::name_last_step() {
  world().names_stop.store(1);
  int64_t last = 0;
  for (int rank = 0; rank < world_size_; ++rank) last = std::max(last, at(rank).may_begin.load());
  world().last_step.store(last);
}
int64_t Progress::last_step_before(int rank, int64_t next) {
  at(rank).may_begin.store(next);
  if (world().names_stop.load() == 0) return RankRecord::kNoStop;
  int64_t last = world().last_step.load();
  for (; last < 0; last = world().last_step.load()) std::this_thread::yield();  // for some loads and a store
  return last;
}

void Progress::request_save() { world().saves.fetch_add(1, std::memory_order_relaxed); }
int64_t Progress::saves_requested() const { return world().saves.load(std::memory_order_relaxed); }

}  // namespace ddhost
