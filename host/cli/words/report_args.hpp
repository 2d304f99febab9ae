// SPDX-License-Identifier: Apache-2.0
//
// cli/words/report_args.hpp: the arguments of the commands that read runs: `ddhost runs`, `ddhost compare`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace ddhost {

enum class RunsAction { kList, kShow, kTail, kPlot, kDiff, kRemove };

struct RunsArgs {
  RunsAction action = RunsAction::kList;
  std::vector<std::string> runs;  // names below `folder`, or paths
  std::filesystem::path folder = "runs";
  bool json = false;
  size_t last = 0;  // of ls: the newest; 0: all. Of tail: rows
  bool follow = false;
  bool html = false;
  std::filesystem::path html_file;  // empty: report.html in the run's folder
  std::string metrics;              // with commas
  bool is_logarithmic = false;
  std::filesystem::path svg_file;
  size_t width = 0, height = 16;  // of a plot in characters; width 0: that of the terminal
  std::optional<double> older_s;
  bool yes = false, all_files = false;
};

struct CompareArgs {
  std::vector<std::string> strategies, models, sizes;  // models and sizes: empty: that of the configuration
  double budget_s = 600;
  int64_t rounds = 3;
  int64_t steps = 0;  // of each run; 0: as many as the budget allows
  std::filesystem::path out;
  bool has_default_out = false;  // runs/compare, runs/tune
  uint64_t memory_bytes = 0;     // of tune: of each rank; 0: its share of what is free
  bool json = false;
};

// The words of a list that has commas or blanks; each once.
std::vector<std::string> list_of(const std::vector<std::string>& words);

// Joins the words of a list behind `flag`, which takes one word: "--model", "A,", "B" are "--model", "A,B".
void join_list(std::vector<std::string>& words, const std::string& flag);

// Adds the command to the parser; it returns it. The action is set when its subcommand is parsed.
CLI::App* add_runs(CLI::App& app, RunsArgs& args);
// The flags of `ddhost compare` and `ddhost tune` that no run has. `strategies`, `sizes`: lists for list_of.
void add_compare_flags(CLI::App& compare, CompareArgs& args, std::vector<std::string>& strategies,
                       std::vector<std::string>& sizes);

}  // namespace ddhost
