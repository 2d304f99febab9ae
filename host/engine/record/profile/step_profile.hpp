// SPDX-License-Identifier: Apache-2.0
//
// engine/record/profile/step_profile.hpp: the profile of some steps of a run (profile.steps): on each rank what it spent its
// time on, and at the end tables of it, by part of a step, by unit of the model and by operation between ranks; and a trace
// file of each rank. Without the option nothing is measured.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/services/tables/interfaces.hpp"

namespace ddhost {

// First and last step, both included; 0 and 0: none.
struct ProfiledSteps {
  int64_t first = 0, last = 0;
  [[nodiscard]] bool has(int64_t step) const { return first > 0 && step >= first && step <= last; }
};

// Of profile.steps: "" is none, "auto" are five steps behind the first two, "20-25" or "20" are those. The run has steps
// after `done`, those before a resume, up to `last`. Error: it is malformed, or names a step after the last.
ProfiledSteps profiled_steps(const std::string& text, int64_t done, int64_t last);
// The same where the length of the run is not known yet.
void require_profile_steps(const std::string& text);

// Calls that cost the same: a call of the model, with the samples of its micro-batch.
struct UnitCost {
  UnitWork call;
  uint64_t micro_batch;
  bool operator<(const UnitCost& other) const {
    return std::tie(call, micro_batch) < std::tie(other.call, other.micro_batch);
  }
};

// The spans of a measured step.
struct TracedStep {
  int64_t step = 0, begin_ns = 0, end_ns = 0;
  std::vector<TraceSpan> spans;
  std::set<std::string> texts;  // of the spans
};

class StepProfile {
 public:
  // `services` outlive the object. Error: the trace file of this rank exists in `run_dir`, or see profiled_steps.
  StepProfile(RankServices& services, const std::filesystem::path& run_dir, int64_t done, int64_t last);

  void step_begin(int64_t step);
  void step_end(int64_t step, uint64_t micro_batch);

  [[nodiscard]] bool is_on() const { return steps_.first > 0; }
  [[nodiscard]] const ProfiledSteps& steps() const { return steps_; }
  [[nodiscard]] int64_t count() const { return count_; }
  [[nodiscard]] const std::array<double, kSpanKinds>& kinds_ms() const { return kinds_ms_; }
  [[nodiscard]] const OfParts<double>& parts_ms() const { return parts_ms_; }
  // Minor page faults of the thread whose time counts, by the part that it was in.
  [[nodiscard]] const OfParts<uint64_t>& faults() const { return faults_; }
  [[nodiscard]] const std::map<int32_t, double>& waited_ms() const { return waited_ms_; }
  [[nodiscard]] const std::map<std::string, Collective>& collectives() const { return collectives_; }
  [[nodiscard]] const std::map<UnitCost, Spent>& units() const { return units_; }
  [[nodiscard]] const std::map<std::string, Spent>& operations() const { return operations_; }
  // Where this rank writes its trace, which is named by the steps that were measured.
  [[nodiscard]] std::filesystem::path trace_path() const { return trace_path(steps_.first + count_ - 1); }
  // The measured steps that fit into kMostTraced spans, from the first on.
  [[nodiscard]] const std::vector<TracedStep>& traced() const { return traced_; }
  [[nodiscard]] const std::vector<std::string>& threads() const { return threads_; }

 private:
  void trace(int64_t step, Profile&& taken);
  [[nodiscard]] std::filesystem::path trace_path(int64_t last) const;

  RankServices& services_;
  const std::filesystem::path run_dir_;
  const ProfiledSteps steps_;
  int64_t count_ = 0;  // of the steps that were measured
  std::array<double, kSpanKinds> kinds_ms_{};
  OfParts<double> parts_ms_{};
  OfParts<uint64_t> faults_{};
  std::map<int32_t, double> waited_ms_;
  std::map<UnitCost, Spent> units_;
  std::map<std::string, Spent> operations_;
  std::map<std::string, Collective> collectives_;
  std::vector<TracedStep> traced_;
  size_t traced_spans_ = 0;
  std::vector<std::string> threads_;
};

// Spans of a rank in its trace: 100 bytes each in memory, 200 in the file.
inline constexpr size_t kMostTraced = 500'000;

// Error: there is something at this path of a trace.
void require_new_trace(const std::filesystem::path& path);
// Writes the trace of this rank, in the trace event format of Chrome, which Perfetto reads: the rank is a process, its threads
// have their names, times are those of the machine's monotonic clock. Returns a line that says so. Error: the file exists or
// can't be written.
std::string write_trace(const StepProfile& profile, const ddh_model_desc& model, int32_t rank);

// The parts of a step, which add up to its time, on every rank. Time in which a rank waits for others is taken from their
// collectives: what a call took longer than on the rank where it was shortest, which came last. Page faults are taken from
// the part in which they happened, at the time that a page fault takes on this machine.
class StepParts {
 public:
  // [collective]
  StepParts(const StepProfile& profile, const Comm& comm);

  [[nodiscard]] std::string text(size_t columns) const;
  [[nodiscard]] nlohmann::ordered_json json() const;

 private:
  struct Row {
    std::string name;
    int32_t peer = -1;                // of a wait
    std::vector<double> ms_of_ranks;  // of all measured steps
  };
  // Milliseconds of this rank's waits by rank, which are no longer those of the collective.
  static std::map<int32_t, double> waits_in_collectives(const StepProfile& profile, const Comm& comm,
                                                        OfParts<double>& parts_ms);
  [[nodiscard]] double total_of(size_t rank) const;
  // Of this rank, of one step.
  [[nodiscard]] double ms(const Row& row) const;

  const int64_t count_;
  const size_t rank_;
  std::vector<Row> rows_;
  uint64_t faults_ = 0;  // on this rank
  double us_of_fault_ = 0;
};

// FLOPs of one call; nullopt: the model does not say.
using FlopsOf = std::function<std::optional<double>(const UnitCost& cost)>;

// The tables. Rank 0's numbers, and the times of the other ranks beside them.
class ProfileReport {
 public:
  // Gathers the times of all ranks. [collective]
  ProfileReport(const StepProfile& profile, const ddh_model_desc& model, const Comm& comm, const FlopsOf& flops_of);

  [[nodiscard]] std::string text(size_t columns) const;
  // Writes profile.json into the run's folder, or profile-2.json beside that of steps before a resume. Returns its path.
  [[nodiscard]] std::filesystem::path write(const std::filesystem::path& run_dir) const;

 private:
  [[nodiscard]] std::string json() const;
  struct Work {
    double ms = 0;
    std::optional<double> flops = 0;
    uint64_t calls = 0;
    void add(const Spent& spent, const std::optional<double>& of_a_call);
  };
  struct UnitRow {
    std::string name;
    Work forward, backward, recompute;
    std::vector<double> ms_of_ranks;
    [[nodiscard]] double ms() const { return forward.ms + backward.ms + recompute.ms; }
    [[nodiscard]] std::optional<double> flops() const;
    UnitRow& operator+=(const UnitRow& more);
  };
  struct OperationRow {
    std::string name;
    Spent spent;
    std::vector<double> ms_of_ranks;
  };
  void add_units(const StepProfile& profile, const ddh_model_desc& model, const FlopsOf& flops_of);
  void gather(const StepProfile& profile, const Comm& comm);
  [[nodiscard]] double total_ms() const;
  [[nodiscard]] std::string units_text(size_t columns) const;
  [[nodiscard]] std::string operations_text(size_t columns) const;

  ProfiledSteps steps_;
  int64_t count_;
  int32_t ranks_;
  std::array<double, kSpanKinds> kinds_ms_;
  StepParts parts_;
  std::vector<UnitRow> units_;
  std::vector<OperationRow> operations_;
};

}  // namespace ddhost
