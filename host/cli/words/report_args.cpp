// SPDX-License-Identifier: Apache-2.0
#include "cli/words/report_args.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "draw/text.hpp"

namespace ddhost {
namespace {

CLI::App* add_action(CLI::App& runs, RunsArgs& args, RunsAction action, const char* name, const char* help) {
  CLI::App* sub = runs.add_subcommand(name, help);
  sub->callback([&args, action] { args.action = action; });
  sub->add_option("--in", args.folder, "folder that holds the runs; default: runs");
  sub->add_flag("--json", args.json, "print JSON");
  return sub;
}

// A time as a person writes it, into seconds.
void add_time(CLI::App& app, const char* name, std::optional<double>& to, const char* help) {
  app.add_option_function<std::string>(
      name,
      [&to, name](const std::string& text) {
        to = seconds_from_text(text);
        if (!to) throw CLI::ValidationError(std::string(name) + ": '" + one_line(text) + "' is no time; " + kTimeForms);
      },
      help);
}

void add_plot(CLI::App& runs, RunsArgs& args) {
  CLI::App* plot = add_action(runs, args, RunsAction::kPlot, "plot", "draw values of runs, over one another");
  plot->add_option("run", args.runs, "names or folders of runs")->required();
  plot->add_option("--metric", args.metrics, "values, separated by commas; default: loss and val_loss");
  plot->add_flag("--log", args.is_logarithmic, "logarithmic axis");
  plot->add_option("--svg", args.svg_file, "write the picture to this file instead");
  plot->add_option("--width", args.width, "columns; default: those of the terminal")->check(CLI::Range(20, 1000));
  plot->add_option("--height", args.height, "lines; default: 16")->check(CLI::Range(2, 200));
}

}  // namespace

std::vector<std::string> list_of(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  for (std::string text : words) {
    std::replace(text.begin(), text.end(), ',', ' ');
    std::istringstream in(text);
    for (std::string word; in >> word;)
      if (std::find(out.begin(), out.end(), word) == out.end()) out.push_back(word);
  }
  return out;
}

void join_list(std::vector<std::string>& words, const std::string& flag) {
  const auto at = std::find(words.begin(), words.end(), flag);
  if (at == words.end() || at + 1 == words.end()) return;
  const auto first = at + 1;
  const auto end = std::find_if(first, words.end(), [](const std::string& word) {
    return word.starts_with('-') || word.find('=') != std::string::npos;
  });
  if (end - first < 2) return;
  for (auto more = first + 1; more != end; ++more) *first += (first->ends_with(',') ? "" : ",") + *more;
  words.erase(first + 1, end);
}

void add_compare_flags(CLI::App& compare, CompareArgs& args, std::vector<std::string>& strategies,
                       std::vector<std::string>& sizes) {
  compare.add_option("--strategies", strategies, "strategies to compare, separated by commas or blanks")
      ->expected(1, 1000);
  compare.add_option("--sizes", sizes, "sizes of the model (model.size), separated by commas or blanks")
      ->expected(1, 1000);
  compare.add_option_function<std::string>(
      "--budget",
      [&args](const std::string& text) {
        const std::optional<double> seconds = seconds_from_text(text);
        if (!seconds || *seconds <= 0)
          throw CLI::ValidationError("--budget: '" + one_line(text) + "' is no time; " + kTimeForms);
        args.budget_s = *seconds;
      },
      "time for all runs together; default: 10m");
  compare.add_option("--rounds", args.rounds, "runs of each case; default: 3, fewer where the budget ends")
      ->check(CLI::Range(1, 1000));
  compare.add_option("--steps", args.steps, "steps of each run, with the warm-up; default: what the budget allows")
      ->check(CLI::Range(4, 1000000));
  compare.add_option("--out", args.out,
                     "folder of the runs and of the tables; default: runs/compare or runs/tune, or "
                     "if that holds others, the next that is free: runs/compare-2");
  compare.add_flag("--json", args.json, "print JSON");
}

CLI::App* add_runs(CLI::App& app, RunsArgs& args) {
  CLI::App* runs = app.add_subcommand("runs", "list, show, plot, compare or remove runs");
  runs->require_subcommand(1);
  CLI::App* ls = add_action(*runs, args, RunsAction::kList, "ls", "list runs, the oldest first");
  ls->add_option("folder", args.folder, "folder that holds the runs; default: runs");
  ls->add_option("--last", args.last, "only this many of the newest")->check(CLI::Range(1, 1000000));
  CLI::App* show = add_action(*runs, args, RunsAction::kShow, "show", "show one run");
  show->add_option("run", args.runs, "name or folder of a run")->required()->expected(1);
  show->add_flag("--html", args.html, "write the page of the run, report.html, into its folder");
  show->add_option("--out", args.html_file, "with --html: write the page to this file");
  CLI::App* tail = add_action(*runs, args, RunsAction::kTail, "tail", "show the last rows of a run");
  tail->add_option("run", args.runs, "name or folder of a run")->required()->expected(1);
  tail->add_option("-n,--rows", args.last, "rows; default: 10")->check(CLI::Range(1, 1000000));
  tail->add_flag("-f,--follow", args.follow, "show further rows until the run ends");
  add_plot(*runs, args);
  CLI::App* diff =
      add_action(*runs, args, RunsAction::kDiff, "diff",
                 "show how two runs differ: options, plugins, machine, the first step whose values differ; "
                 "exit code 1 if values differ");
  diff->add_option("run", args.runs, "names or folders of two runs")->required()->expected(2);
  CLI::App* rm = add_action(*runs, args, RunsAction::kRemove, "rm", "remove runs that have ended");
  rm->add_option("run", args.runs, "names or folders of runs; without one: all that are older");
  add_time(*rm, "--older", args.older_s, "only runs that wrote nothing for this time: 30d, 12h");
  rm->add_flag("--yes", args.yes, "do not ask");
  rm->add_flag("--all-files", args.all_files, "also remove files in their folders that no run writes");
  return runs;
}

}  // namespace ddhost
