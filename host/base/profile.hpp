// SPDX-License-Identifier: Apache-2.0
//
// base/profile.hpp: what a rank spent its time on while a profile was taken: by part of a step, by unit of the model and by
// operation between ranks; and each span of it, for a trace. The clock fills it.
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace ddhost {

inline constexpr size_t kSpanKinds = 6;
inline constexpr std::array<const char*, kSpanKinds> kSpanNames = {"other",    "data", "forward",
                                                                   "backward", "comm", "optim"};

// The parts of a step, which add up to its time.
enum class StepPart : uint8_t {
  forward,
  backward,
  recompute,
  gather,  // what ranks send each other, but for sums
  reduce,
  optimizer,
  norm,
  wait,  // for another rank
  data,
  memory,    // memory that plugins allocate and free, and page faults
  strategy,  // its code without what it calls
  host,      // outside of every span: the remainder
};
inline constexpr size_t kParts = 12;
inline constexpr std::array<const char*, kParts> kPartNames = {
    "forward", "backward", "recompute",           "gather",          "reduce", "optimizer pass", "norm", "waiting",
    "data",    "memory",   "strategy's own code", "host's own share"};

template <class T>
class OfParts {  // one T for each part
 public:
  T& operator[](StepPart part) { return values_[static_cast<size_t>(part)]; }
  const T& operator[](StepPart part) const { return values_[static_cast<size_t>(part)]; }
  [[nodiscard]] auto begin() const { return values_.begin(); }
  [[nodiscard]] auto end() const { return values_.end(); }

 private:
  std::array<T, kParts> values_{};
};

// A call of the model: a position of a program, and DDH_PHASE_*.
struct UnitWork {
  int32_t program, position, phase;
  auto operator<=>(const UnitWork&) const = default;
};

// What a span of time is about: a call of the model or an operation, or neither. The texts live as long as the span.
struct SpanTopic {
  SpanTopic() = default;
  explicit SpanTopic(const UnitWork& call) : is_unit(true), unit(call) {}
  explicit SpanTopic(const char* name, const char* of = nullptr, const char* at = nullptr)
      : operation(name), detail(of), label(at) {}
  // An operation that is done when all of these ranks take part in it.
  SpanTopic& among(const std::vector<int32_t>& ranks) {
    members = &ranks;
    return *this;
  }

  // More of the call of the model before, and no call of its own.
  SpanTopic& goes_on() {
    is_call = false;
    return *this;
  }

  bool is_unit = false, is_call = true;
  UnitWork unit{};
  const char* operation = nullptr;  // "all_gather"
  const char* detail = nullptr;     // "decide"; nullptr: none
  const char* label = nullptr;      // for the trace: the window; nullptr: none
  const std::vector<int32_t>* members = nullptr;
};

struct Spent {
  uint64_t calls = 0, bytes = 0;  // bytes that this rank sends
  double ms = 0;                  // without that of spans inside

  Spent& operator+=(const Spent& more) {
    calls += more.calls;
    bytes += more.bytes;
    ms += more.ms;
    return *this;
  }
};

// A span that has ended. The texts are those of its profile.
struct TraceSpan {
  StepPart part = StepPart::host;
  bool is_unit = false;
  UnitWork unit{};
  const char *name = nullptr, *detail = nullptr, *label = nullptr;
  int32_t peer = -1;                 // the rank that was waited for; -1: none, or not known
  uint32_t thread = 0;               // place in Profile::threads
  int64_t begin_ns = 0, end_ns = 0;  // of the monotonic clock
};

// The calls of one operation among one group of ranks, in order: milliseconds without spans inside.
struct Collective {
  StepPart part = StepPart::gather;
  std::vector<double> calls_ms;
};

struct Profile {
  std::array<double, kSpanKinds> kinds_ms{};
  OfParts<double> parts_ms{};
  OfParts<uint64_t> faults{};           // minor page faults of the thread that had the span
  std::map<int32_t, double> waited_ms;  // in marks, by the rank that was waited for
  std::map<UnitWork, Spent> units;
  std::map<std::string, Spent> operations;        // "all_gather, decide"
  std::map<std::string, Collective> collectives;  // "all_gather, decide; 0 1"
  std::vector<TraceSpan> spans;
  std::set<std::string> texts;       // of spans; they stay in place when the set is moved
  std::vector<std::string> threads;  // names
  int64_t begin_ns = 0, end_ns = 0;

  // nullptr: of neither. Elements stay in place.
  Spent* find(const SpanTopic& topic) {
    if (topic.is_unit) return &units[topic.unit];
    return topic.operation == nullptr ? nullptr : &find(topic.operation, topic.detail);
  }
  Spent& find(const char* operation, const char* detail) { return operations[operation_name(operation, detail)]; }
  static std::string operation_name(const char* operation, const char* detail) {
    return detail == nullptr ? std::string(operation) : std::string(operation) + ", " + detail;
  }
  // The same text in `texts`; nullptr stays. There are few different ones.
  const char* kept(const char* text);
};

// A span that is open while a profile is taken.
struct OpenSpan {
  TraceSpan trace;
  Spent* spent = nullptr;
  const std::vector<int32_t>* members = nullptr;
  std::string operation;  // where there are members
  double own_ms = 0, norm_ms = 0;
};

// Fills a profile. Not thread-safe: the clock calls it with its mutex held.
class ProfileRecorder {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit ProfileRecorder(Time now) { profile_.begin_ns = ns_of(now); }

  // `outer`: the innermost open span of this thread, or nullptr. Of `kind` DDH_SPAN_*.
  [[nodiscard]] OpenSpan begin(size_t kind, const SpanTopic& topic, const OpenSpan* outer, Time now);
  // A span of a part, which changes neither the times of units nor those of operations.
  [[nodiscard]] OpenSpan begin_part(StepPart part, const char* name, const char* label, int32_t peer,
                                    const OpenSpan* outer, Spent* spent, Time now);
  void end(OpenSpan& span, Time now);
  // `span`: the one that time counts for; nullptr: none is open.
  void charge(size_t kind, OpenSpan* span, double ms);
  // Moves time of this thread's innermost span: the sum of gradients and their norm take turns.
  void share_norm(OpenSpan* span, double ms);
  // A span of a thread whose time does not count.
  void beside(const char* name, Time from, Time to);
  void note_operation(const char* operation, const Spent& more) { profile_.find(operation, nullptr) += more; }
  [[nodiscard]] Profile take(Time now);

 private:
  struct Thread {
    uint32_t index;
    int64_t faults;  // until now
  };
  static int64_t ns_of(Time time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  }
  Thread& this_thread();
  // Counts the page faults since the last call on this thread.
  void charge_faults(const OpenSpan* span);

  Profile profile_;
  std::map<std::thread::id, Thread> threads_;
};

}  // namespace ddhost
