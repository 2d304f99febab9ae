// SPDX-License-Identifier: Apache-2.0
//
// report/run_rows.hpp: collects the rows of a run as curves, last and best values, and the lines of its log that are warnings.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "report/past_run.hpp"

namespace ddhost {

class RowCollector {
 public:
  // Its configuration says which evaluation is the best. `run` outlives the object.
  explicit RowCollector(PastRun& run);
  bool row(const MetricsRow& row);
  // Sets the throughput. `mean_ms`: of `steps` steps, from the summary; 0: not known.
  void finish(double mean_ms, double steps);

 private:
  void add(const std::string& name, int64_t step, double value);
  void add_rate(const MetricsRow& row);

  PastRun& run_;
  std::string best_name_, items_;
  bool lower_;
  std::map<std::string, size_t> places_;
  int64_t first_step_ = -1;
  bool has_programs_ = false;
  double first_ms_ = 0, ms_ = 0, done_ = 0, last_ms_ = 0, last_items_ = 0;
};

// Of very many warnings the first and the last. `run` outlives the object.
class WarningCollector {
 public:
  explicit WarningCollector(PastRun& run) : run_(run) {}
  // A line of log.txt.
  void line(std::string_view text);

 private:
  PastRun& run_;
  size_t left_out_ = 0;
};

}  // namespace ddhost
