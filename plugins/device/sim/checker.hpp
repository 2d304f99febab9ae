// SPDX-License-Identifier: Apache-2.0
//
// checker.hpp: checks that every piece of queued work is ordered after earlier work on the same memory. It checks when
// work is queued, from the declared accesses and not from timing, so a missing event is found in every run.
//
// Each stream, and the host, is an actor with a vector clock: the number of operations of each actor that are done
// before its next operation. Events pass clocks from stream to stream, synchronize passes one to the host, and every
// call passes the host's clock to a stream. Two operations that access the same byte, one of them writing, must be
// ordered by these clocks (Lamport 1978; the detector is that of Flanagan and Freund, FastTrack, PLDI 2009, without its
// shortcuts).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ddh/service/stream.h"

namespace sim {

// Per actor: operations known to be done.
class VectorClock {
 public:
  [[nodiscard]] uint64_t of(size_t actor) const { return actor < counts_.size() ? counts_[actor] : 0; }
  void set(size_t actor, uint64_t count);
  void join(const VectorClock& other);

 private:
  std::vector<uint64_t> counts_;
};

// One piece of work: its description for messages, and its place on its stream.
struct Operation {
  std::string name;    // "copy", "the optimizer's update"
  std::string stream;  // "default"
  size_t actor;
  uint64_t number;  // on its stream, from 1
};
using OperationPtr = std::shared_ptr<const Operation>;
std::string text_of(const Operation& operation);

// For each declared byte: the last writer, and the readers since.
class Checker {
 public:
  // A pair of unordered operations, or nothing.
  struct Conflict {
    OperationPtr earlier;
    bool earlier_writes = false, later_writes = false;
    const char* at = nullptr;
  };

  // Looks for a conflict of an operation whose clock is `now`, and whose own actor is `actor`, with earlier ones.
  [[nodiscard]] Conflict find_conflict(const ddh_access& access, size_t actor, const VectorClock& now) const;
  void note(const ddh_access& access, const OperationPtr& operation);
  // An operation on these bytes that is not ordered before `now`, or null.
  [[nodiscard]] OperationPtr unfinished(const char* begin, uint64_t bytes, const VectorClock& now) const;
  void forget(const char* begin, uint64_t bytes);
  // Removes operations that are ordered before `now`: later work can't conflict with them.
  void forget_known(const VectorClock& now);
  [[nodiscard]] size_t cells() const { return cells_.size(); }

 private:
  // A range of bytes with the same history. Cells never overlap.
  struct Cell {
    const char* end = nullptr;
    OperationPtr writer;
    std::vector<OperationPtr> readers;  // since the write; one per actor
  };
  using Cells = std::map<const char*, Cell>;
  [[nodiscard]] Cells::const_iterator first_at(const char* begin) const;
  void split(const char* at);

  Cells cells_;
};

}  // namespace sim
