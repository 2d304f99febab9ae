// SPDX-License-Identifier: Apache-2.0
//
// report/run_tables.hpp: parts of a run as tables, for the terminal and for pages.
#pragma once

#include <string>
#include <vector>

#include "draw/table.hpp"
#include "report/past_run.hpp"

namespace ddhost {

// Name and value: date, model, strategy, ranks, steps, last and best values, throughput, size.
Table facts_table(const PastRun& run);
// One row for each option whose value is not its default.
Table given_table(const PastRun& run);
// One row for each rank: memory and time. Of many ranks the first and the last.
Table ranks_table(const PastRun& run);
// One row for each tag: the peak of a rank (lowest, highest), what was planned, and all ranks together.
Table memory_table(const PastRun& run);
Table checkpoints_table(const PastRun& run);
Table machine_table(const PastRun& run);
Table plugins_table(const PastRun& run);
// Of the start and of the log.
std::vector<std::string> warnings_of(const PastRun& run);

// The table of memory, with bars: the measured peak of a tag, and its plan.
std::string memory_html(const PastRun& run);
// Bars: the parts of each rank's time.
std::string time_html(const PastRun& run);
// What a list of runs shows, in full.
Json json_of(const PastRun& run);
// "" for a table without rows.
std::string table_or_nothing(const Table& table);

// "3.2119", "nan", "": as tables show an optional value.
std::string value_text(const std::optional<double>& value);
// "26.3k tokens/s"
std::string rate_text(const PastRun& run);

}  // namespace ddhost
