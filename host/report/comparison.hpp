// SPDX-License-Identifier: Apache-2.0
//
// report/comparison.hpp: what runs of several strategies have measured, side by side.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "draw/table.hpp"

namespace ddhost {

// What one row of a comparison runs.
struct ComparedCase {
  std::string model, size, strategy;       // "": that of the configuration
  std::vector<std::string> options;        // further key=value of its runs
  [[nodiscard]] std::string name() const;  // "A", "A data.micro_batch=8"
  // Cases of the same group are compared with one another.
  [[nodiscard]] std::string group() const { return size.empty() ? model : model + " " + size; }
};

// One value of each run of a case, and the rest of its last run.
struct Measured {
  ComparedCase of;
  std::string problem;              // why it has no values; empty: it has
  std::vector<double> items_per_s;  // of all ranks, one for each round, without the warm-up
  std::vector<double> step_ms;      // the same
  std::string items;                // "tokens"
  std::string model;                // and its size, as the run names them
  int64_t ranks = 0, steps = 0, left_out = 0;
  std::vector<std::pair<std::string, double>> tags;  // peak bytes of the rank that has most
  double tags_of_rank = 0, tags_of_all = 0;          // of all tags; shared pages of all ranks once
  double pss = 0;                                    // of all processes, as the system counts; 0: not known
  std::optional<double> sent_per_step;               // bytes that rank 0 sent
  std::vector<std::pair<int64_t, uint64_t>> values;  // step, and the bits of its loss and gradient norm
  std::vector<double> losses;                        // of the same steps
  bool rounds_differ = false;                        // rounds gave other values, which none should

  [[nodiscard]] bool is_there() const { return problem.empty() && !items_per_s.empty(); }
  [[nodiscard]] double speed() const;   // the median of the rounds
  [[nodiscard]] double spread() const;  // half of the range of the rounds, as a part of the speed
};

// Whether a case is as fast as the fastest, within the spread of both.
bool is_as_fast(const Measured& one, const Measured& fastest);

// Adds a run that has ended. The first `warm_up` steps do not count for the speed. Throws ddh::Error if it has no values.
void add_round(Measured& to, const std::filesystem::path& run, int64_t warm_up);

// The tables of one group, whose first case with values is the base.
struct ComparedGroup {
  std::string title;
  Table speed, memory;
  std::vector<std::string> advice;  // "use zero1 when ...", from the measured numbers
};
std::vector<ComparedGroup> compared(const std::vector<Measured>& all);

std::string comparison_text(const std::vector<ComparedGroup>& groups, size_t width);  // columns
std::string comparison_markdown(const std::vector<ComparedGroup>& groups);
std::string comparison_csv(const std::vector<Measured>& all);  // numbers in full
std::string comparison_html(const std::vector<ComparedGroup>& groups, const std::vector<Measured>& all);
Json comparison_json(const std::vector<Measured>& all);

}  // namespace ddhost
