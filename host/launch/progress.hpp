// SPDX-License-Identifier: Apache-2.0
//
// launch/progress.hpp: pages of each rank that all ranks and the launcher share: the rank's step, its current plugin
// and call, the reason of a failure, and whether the run was asked to stop. They survive the rank, so the launcher can
// report a dead rank's last step and call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/calls/rank_record.hpp"

namespace ddhost {

class Progress {
 public:
  explicit Progress(int world_size);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  // The step that the rank is working on; counts from 1, 0 = before the first.
  void set_step(int rank, int64_t step);
  [[nodiscard]] int64_t step(int rank) const;
  // The rank has begun with what the run is for; before that, nothing is lost if it ends.
  void set_begun(int rank);
  [[nodiscard]] bool has_begun(int rank) const;
  // The rank has done all steps of the run.
  void set_done(int rank);
  [[nodiscard]] bool is_done(int rank) const;
  // The process of the rank, which the loader has started; 0: none.
  void set_process(int rank, int32_t pid);
  [[nodiscard]] int32_t process(int rank) const;

  // The reason of a rank's failure; the first call counts. `caused_by_peer`: it only noticed that another rank had
  // ended. Safe in signal handlers.
  void set_failure(int rank, std::string_view sentence, bool caused_by_peer);
  struct Failure {
    std::string sentence;
    bool caused_by_peer = false;
    uint32_t order = 0;  // 1 = the first failure of all ranks; 0 = no failure
  };
  [[nodiscard]] Failure failure(int rank) const;

  // Marks the rank as complete. A rank that ends without this has failed, whatever its exit code is.
  void set_complete(int rank);
  [[nodiscard]] bool is_complete(int rank) const;

  [[nodiscard]] CallLane& lane(int rank, RankThread thread = RankThread::kMain) const;
  // Stores a plugin's name ("strategy 'zero1'") for messages about its calls, and returns its number for CallFrame. A
  // known name keeps its number. If there is no space, the number means "a plugin".
  uint8_t add_plugin(int rank, std::string_view name);
  // The units of the model, equal on all ranks: the first rank's call counts.
  void set_unit_names(const char* const* names, size_t count);

  // The memory that a rank's strategy has planned; the first rank's call counts. "": not planned yet.
  void set_plan(std::string_view text);
  [[nodiscard]] std::string plan() const;

  // What a rank counts while it trains. A reader may see numbers of two calls side by side.
  void set_planned(int rank, const std::array<uint64_t, RankNumbers::kTags>& bytes);
  [[nodiscard]] std::array<uint64_t, RankNumbers::kTags> planned(int rank) const;
  void set_numbers(int rank, const RankNumbers& numbers);
  [[nodiscard]] RankNumbers numbers(int rank) const;

  void set_shortage(const Shortage& shortage);
  [[nodiscard]] std::optional<Shortage> shortage() const;

  // Whether a thread of the rank waits for other ranks in its current call.
  [[nodiscard]] bool waits(int rank, RankThread thread = RankThread::kMain) const;

  // The calls of a rank's thread: "update of optimizer 'x' (in step of strategy 'y')"; "" outside of plugins. Writes at
  // most `capacity` bytes including the NUL; safe in signal handlers.
  void write_place(int rank, RankThread thread, char* text, size_t capacity) const;
  // One call: "acquire of unit 'h.3' of strategy 'y'". Safe in signal handlers.
  void write_call(int rank, const CallFrame& frame, char* text, size_t capacity) const;
  [[nodiscard]] std::string place(int rank, RankThread thread = RankThread::kMain) const;
  [[nodiscard]] std::string call_text(int rank, const CallFrame& frame) const;

  // Asks all ranks to finish the current step and end. A rank reads it once per step and agrees with the others.
  void request_stop();
  [[nodiscard]] bool stop_requested() const;
  // Names the step after which the ranks end that do not agree in every step (RankRecord::last_step_before). Only where these
  // pages are those of all ranks. Called once, after request_stop.
  void name_last_step();
  [[nodiscard]] int64_t last_step_before(int rank, int64_t next);
  // Asks for a checkpoint after the current step; each call counts.
  void request_save();
  [[nodiscard]] int64_t saves_requested() const;

 private:
  struct World;
  struct Rank;
  struct Units;
  [[nodiscard]] Rank& at(int rank) const;
  [[nodiscard]] World& world() const;
  [[nodiscard]] Units& units() const;

  void* pages_ = nullptr;
  size_t bytes_ = 0;
  int world_size_ = 0;
};

// The pages of one rank, as the rank writes them.
class ProgressOfRank final : public RankRecord {
 public:
  ProgressOfRank(Progress& progress, int rank) : progress_(progress), rank_(rank) {}

  void set_step(int64_t step) override { progress_.set_step(rank_, step); }
  void set_begun() override { progress_.set_begun(rank_); }
  void set_done() override { progress_.set_done(rank_); }
  [[nodiscard]] bool stop_requested() const override { return progress_.stop_requested(); }
  [[nodiscard]] int64_t last_step_before(int64_t next) override { return progress_.last_step_before(rank_, next); }
  [[nodiscard]] int64_t saves_requested() const override { return progress_.saves_requested(); }
  [[nodiscard]] CallLane& lane(RankThread thread) override { return progress_.lane(rank_, thread); }
  uint8_t add_plugin(std::string_view name) override { return progress_.add_plugin(rank_, name); }
  void set_unit_names(const char* const* names, size_t count) override { progress_.set_unit_names(names, count); }
  void set_plan(std::string_view text) override { progress_.set_plan(text); }
  void set_planned(const std::array<uint64_t, RankNumbers::kTags>& bytes) override {
    progress_.set_planned(rank_, bytes);
  }
  void set_numbers(const RankNumbers& numbers) override { progress_.set_numbers(rank_, numbers); }
  void set_shortage(const Shortage& shortage) override { progress_.set_shortage(shortage); }

 private:
  Progress& progress_;
  const int rank_;
};

}  // namespace ddhost
