// SPDX-License-Identifier: Apache-2.0
//
// cli/runs.hpp: the actions of `ddhost runs`. All return the exit code.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>

#include "cli/words/report_args.hpp"
#include "draw/table.hpp"

namespace ddhost {

int list_runs(const RunsArgs& args, std::ostream& out);
int show_run(const RunsArgs& args, std::ostream& out);
int tail_run(const RunsArgs& args, std::ostream& out);
int plot_runs(const RunsArgs& args, std::ostream& out);
int diff_runs(const RunsArgs& args, std::ostream& out);
int remove_runs(const RunsArgs& args, std::ostream& out);

// The folder of the run that a word names: a path, or a name below args.folder. Error: there is none.
std::filesystem::path named_run(const RunsArgs& args, const std::string& word);

// Text for stdout, as wide as its terminal. A file has all columns of a table side by side, and whole lines.
std::string fitted(const Table& table, size_t most_columns = 60);
std::string fitted(const std::string& text);

}  // namespace ddhost
