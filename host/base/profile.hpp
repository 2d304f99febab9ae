// SPDX-License-Identifier: Apache-2.0
//
// base/profile.hpp: what a rank spent its time on while a profile was taken, by unit of the model and by operation between
// ranks. The clock fills it.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <string>

namespace ddhost {

inline constexpr size_t kSpanKinds = 6;
inline constexpr std::array<const char*, kSpanKinds> kSpanNames = {"other",    "data", "forward",
                                                                   "backward", "comm", "optim"};

// A call of the model: a position of a program, and DDH_PHASE_*.
struct UnitWork {
  int32_t program, position, phase;
  auto operator<=>(const UnitWork&) const = default;
};

// What a span of time is about: a call of the model or an operation, or neither. The texts live as long as the span.
struct SpanTopic {
  SpanTopic() = default;
  explicit SpanTopic(const UnitWork& call) : is_unit(true), unit(call) {}
  explicit SpanTopic(const char* name, const char* of = nullptr) : operation(name), detail(of) {}

  bool is_unit = false;
  UnitWork unit{};
  const char* operation = nullptr;  // "all_gather"
  const char* detail = nullptr;     // "decide"; nullptr: none
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

struct Profile {
  std::array<double, kSpanKinds> parts_ms{};
  std::map<UnitWork, Spent> units;
  std::map<std::string, Spent> operations;  // "all_gather, decide"

  // nullptr: of neither. Elements stay in place.
  Spent* find(const SpanTopic& topic) {
    if (topic.is_unit) return &units[topic.unit];
    return topic.operation == nullptr ? nullptr : &find(topic.operation, topic.detail);
  }
  Spent& find(const char* operation, const char* detail) {
    return operations[detail == nullptr ? std::string(operation) : std::string(operation) + ", " + detail];
  }
};

}  // namespace ddhost
