// SPDX-License-Identifier: Apache-2.0
//
// report/metrics_file.hpp: reads the rows of a run, a file of JSON lines, which the run may be writing, and which a crash
// may have cut at any byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.hpp"

namespace ddhost {

// The rows in the folder of a run: the file metrics.json or metrics.json?. Empty: there is none.
std::filesystem::path rows_file(const std::filesystem::path& folder);

struct MetricsRow {
  int64_t step = 0;
  std::string program;                                 // "" where only one is trained
  std::vector<std::pair<std::string, double>> values;  // NaN for a number that was not finite
  // Of an evaluation: it has no time of a step.
  [[nodiscard]] bool is_evaluation() const { return find("step_ms") == nullptr; }
  [[nodiscard]] const double* find(std::string_view name) const;
};

enum class Rows {
  all,
  few,  // the first two and the last of the steps, and each evaluation: what a list of runs shows
};

// A line of the file; the summary is put into `summary`. Nothing: it is no row.
std::optional<MetricsRow> row_of_line(const std::string& line, Json& summary);
// Whether a line is that of an evaluation, without reading it.
bool is_evaluation(std::string_view line);

struct MetricsEnd {
  Json summary;             // null: there is none
  std::string text;         // of the summary, as the file has it
  uint64_t unreadable = 0;  // lines that are no rows
  bool is_cut = false;      // the last line is not complete
  bool is_there = true;
};

// `file`: of rows_file. Calls `on_row` for the rows, in the order of the file, until it returns false. Throws ddh::Error if
// the file can't be read.
MetricsEnd read_metrics(const std::filesystem::path& file, Rows rows,
                        const std::function<bool(const MetricsRow&)>& on_row);

}  // namespace ddhost
