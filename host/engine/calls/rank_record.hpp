// SPDX-License-Identifier: Apache-2.0
//
// engine/calls/rank_record.hpp: the record that a rank keeps for the launcher: its step, and the calls that its threads
// are in. The launcher stores it in memory that survives the rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/calls/call_record.hpp"
#include "engine/calls/misuse.hpp"

namespace ddhost {

// The threads of a rank whose calls are recorded: the main one, and those that prepare data.
enum class RankThread : uint8_t { kMain, kData };
inline constexpr size_t kDataThreads = 16, kRankThreads = 1 + kDataThreads;
// The i-th thread that prepares data.
constexpr RankThread data_thread(size_t i) {
  return static_cast<RankThread>(static_cast<size_t>(RankThread::kData) + i);
}

class RankRecord {
 public:
  RankRecord() = default;
  RankRecord(const RankRecord&) = delete;
  RankRecord& operator=(const RankRecord&) = delete;
  virtual ~RankRecord() = default;

  // The step that the rank is working on; counts from 1, 0 = before the first.
  virtual void set_step(int64_t step) = 0;
  // The rank has begun with what the run is for (an evaluation, the text to generate, the end of a training). A step
  // says the same. Before that, nothing is lost if the rank ends.
  virtual void set_begun() {}
  // All steps of the run are done; what follows only writes results.
  virtual void set_done() {}
  // Whether the run was asked to end after the current step. A rank reads it once per step and agrees with the others.
  [[nodiscard]] virtual bool stop_requested() const = 0;
  // How often the run has been asked to save a checkpoint after the current step.
  [[nodiscard]] virtual int64_t saves_requested() const { return 0; }

  // The record of a thread's calls. Valid while this object lives.
  [[nodiscard]] virtual CallLane& lane(RankThread thread) = 0;
  // Stores a plugin's name ("strategy 'zero1'") for messages about its calls. Returns its number for CallFrame.
  virtual uint8_t add_plugin(std::string_view name) = 0;
  // The memory that the strategy has planned, as text for the message about a lack of memory.
  virtual void set_plan(std::string_view /*text*/) {}
  // The units of the model, equal on all ranks.
  virtual void set_unit_names(const char* const* names, size_t count) = 0;

  // What the rank's plugins did wrong in calls that can't return an error.
  [[nodiscard]] Misuse& misuse() { return misuse_; }

 private:
  Misuse misuse_;
};

}  // namespace ddhost
