// SPDX-License-Identifier: Apache-2.0
//
// checker.hpp: is every piece of queued work ordered behind those that touched the same memory before? Decided when work
// is queued, from what the caller said, never from when it ran: so a missing event is found in every run.
//
// Each stream, and the host, is an actor with a vector clock: how many operations of each actor are known to be done
// before what it does next. Events carry clocks from stream to stream, synchronize carries one to the host, and every
// call carries the host's to a stream. Two operations that touch the same byte, one of them writing, must be ordered by
// these clocks (Lamport 1978; the detector is that of Flanagan and Freund, FastTrack, PLDI 2009, without its shortcuts).
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

// One piece of work: what messages say of it, and its place on its stream.
struct Operation {
  std::string name;    // "copy", "the optimizer's update"
  std::string stream;  // "default"
  size_t actor;
  uint64_t number;  // on its stream, from 1
};
using OperationPtr = std::shared_ptr<const Operation>;
std::string text_of(const Operation& operation);

// Who last wrote, and who has read since, each byte that was ever named.
class Checker {
 public:
  // A pair that nothing orders, or nothing.
  struct Conflict {
    OperationPtr earlier;
    bool earlier_writes = false, later_writes = false;
    const char* at = nullptr;
  };

  // Looks for a conflict of an operation whose clock is `now`, and whose own actor is `actor`, with earlier ones.
  [[nodiscard]] Conflict find_conflict(const ddh_access& access, size_t actor, const VectorClock& now) const;
  void note(const ddh_access& access, const OperationPtr& operation);
  // An operation on these bytes that `now` does not know to be done, or null.
  [[nodiscard]] OperationPtr unfinished(const char* begin, uint64_t bytes, const VectorClock& now) const;
  void forget(const char* begin, uint64_t bytes);
  // Forgets what `now` knows to be done: nothing that is queued later can conflict with it.
  void forget_known(const VectorClock& now);
  [[nodiscard]] size_t cells() const { return cells_.size(); }

 private:
  // A run of bytes with one history; cells never overlap.
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
