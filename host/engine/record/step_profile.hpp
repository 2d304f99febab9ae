// SPDX-License-Identifier: Apache-2.0
//
// engine/record/step_profile.hpp: the profile of some steps of a run (profile.steps): on each rank what it spent its time on,
// and at the end tables of it, by unit of the model and by operation between ranks. Without the option nothing is measured.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
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

class StepProfile {
 public:
  // `services` outlive the object.
  StepProfile(RankServices& services, int64_t done, int64_t last)
      : services_(services), steps_(profiled_steps(services.config.get<std::string>("profile.steps"), done, last)) {}

  void step_begin(int64_t step);
  void step_end(int64_t step, uint64_t micro_batch);

  [[nodiscard]] bool is_on() const { return steps_.first > 0; }
  [[nodiscard]] const ProfiledSteps& steps() const { return steps_; }
  [[nodiscard]] int64_t count() const { return count_; }
  [[nodiscard]] const std::array<double, kSpanKinds>& parts_ms() const { return parts_ms_; }
  [[nodiscard]] const std::map<UnitCost, Spent>& units() const { return units_; }
  [[nodiscard]] const std::map<std::string, Spent>& operations() const { return operations_; }

 private:
  RankServices& services_;
  const ProfiledSteps steps_;
  int64_t count_ = 0;  // of the steps that were measured
  std::array<double, kSpanKinds> parts_ms_{};
  std::map<UnitCost, Spent> units_;
  std::map<std::string, Spent> operations_;
};

// FLOPs of one call; nullopt: the model does not say.
using FlopsOf = std::function<std::optional<double>(const UnitCost& cost)>;

// The tables. Rank 0's numbers, and the times of the other ranks beside them.
class ProfileReport {
 public:
  // Gathers the times of all ranks. [collective]
  ProfileReport(const StepProfile& profile, const ddh_model_desc& model, const Comm& comm, const FlopsOf& flops_of);

  [[nodiscard]] std::string text(size_t columns) const;
  [[nodiscard]] std::string json() const;

 private:
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
  std::array<double, kSpanKinds> parts_ms_;
  std::vector<UnitRow> units_;
  std::vector<OperationRow> operations_;
};

}  // namespace ddhost
