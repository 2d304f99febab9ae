// SPDX-License-Identifier: Apache-2.0
//
// cli/runs.cpp: `ddhost runs ls` and `ddhost runs show`.
#include "cli/runs.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iostream>

#include "base/durable.hpp"
#include "base/json.hpp"
#include "base/terminal.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "ddh/sdk/plugin.hpp"
#include "draw/text.hpp"
#include "report/page.hpp"
#include "report/past_run.hpp"
#include "report/run_tables.hpp"

namespace fs = std::filesystem;

namespace ddhost {

std::string fitted(const Table& table, size_t most_columns) {
  return as_text(table, most_columns, terminal_columns(STDOUT_FILENO, SIZE_MAX));
}

std::string fitted(const std::string& text) {
  const size_t columns = terminal_columns(STDOUT_FILENO, SIZE_MAX);
  return columns == SIZE_MAX ? text : wrapped(text, columns, 2);
}

namespace {

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code ec;
  if (!fs::is_directory(folder, ec))
    ddh::fail(DDH_NOT_FOUND, "there is no folder '", folder.string(),
              "'; runs are in runs/ of the folder in which ddhost was started, or give their folder");
  fs::directory_iterator at(folder, ec);
  if (ec)
    ddh::fail(DDH_PERMISSION_DENIED, "'", folder.string(), "' can't be read: ", ec.message(),
              "; correct its permissions");
  for (const fs::directory_iterator end; !ec && at != end; at.increment(ec))
    if (at->path().filename().string().front() != '.' && is_run_folder(at->path())) out.push_back(at->path());
  if (out.empty() && is_run_folder(folder)) out.push_back(folder);
  return out;
}

// Only values that a reader compares; `ddhost runs show` has the rest.
Table table_of(const std::vector<PastRun>& runs) {
  Table table{
      {"run", "began (UTC)", "state", "model", "strategy", "ranks", "steps", "loss", "best", "speed", "size"}, {}, 5};
  for (const PastRun& run : runs)
    table.rows.push_back({run.name, run.began, run.state(), run.plugin("model.plugin"), run.plugin("strategy.plugin"),
                          std::to_string(run.ranks()), std::to_string(run.last_step), value_text(run.loss),
                          run.best ? value_text(run.best->value) : "-", rate_text(run), bytes_text(run.bytes)});
  return table;
}

std::string section(const Table& table) { return table.rows.empty() ? "" : "\n" + fitted(table); }

std::string text_of(const PastRun& run) {
  const std::string sentence =
      run.start().value("sentence", Json()).is_string() ? run.start()["sentence"].get<std::string>() : "";
  std::string out = ddh::str(one_line(run.name), "  ", run.state(), "\n");
  if (!sentence.empty()) out += fitted(plain_text(sentence)) + "\n";
  Table facts = facts_table(run);
  facts.head = facts.rows.front();
  facts.rows.erase(facts.rows.begin());
  out += fitted(facts, 100) + section(memory_table(run)) + section(ranks_table(run)) + section(checkpoints_table(run));
  if (const Table given = given_table(run); !given.rows.empty())
    out += "\noptions that differ from their defaults" + section(given);
  for (const std::string& warning : warnings_of(run)) out += "\n" + fitted(shown_text(warning));
  for (const std::string& note : run.notes) out += "\nnote: " + fitted(shown_text(note));
  return out + (out.ends_with('\n') ? "" : "\n");
}

}  // namespace

fs::path named_run(const RunsArgs& args, const std::string& word) {
  fs::path path = word;
  std::error_code ec;
  if (is_run_folder(args.folder / path)) return args.folder / path;
  if (is_run_folder(path)) return path;
  if (fs::is_directory(path, ec))
    ddh::fail(DDH_NOT_FOUND, "'", one_line(word), "' is not the folder of a run; `ddhost runs ls` lists runs");
  std::vector<std::string> names;
  if (fs::is_directory(args.folder, ec))
    for (const fs::path& folder : folders_in(args.folder)) names.push_back(folder.filename().string());
  const std::string near = nearest(word, names);
  ddh::fail(DDH_NOT_FOUND, "there is no run '", one_line(word), "' in '", args.folder.string(), "'",
            near.empty() ? "; `ddhost runs ls` lists runs" : "; did you mean '" + one_line(near) + "'?");
}

int list_runs(const RunsArgs& args, std::ostream& out) {
  std::vector<PastRun> runs;
  std::vector<std::string> problems;
  for (const fs::path& folder : folders_in(args.folder)) {
    try {
      runs.push_back(read_past_run(folder, Rows::few));
      runs.back().curves.clear();
    } catch (const std::exception& error) {  // it is being removed, or can't be read
      problems.push_back(ddh::str("'", one_line(folder.string()), "': ", plain_text(sentence_of(error))));
    }
  }
  std::stable_sort(runs.begin(), runs.end(), [](const PastRun& a, const PastRun& b) {
    return std::pair(a.began, a.name) < std::pair(b.began, b.name);
  });
  if (args.last > 0 && runs.size() > args.last)
    runs.erase(runs.begin(), runs.end() - static_cast<std::ptrdiff_t>(args.last));
  if (args.json) {
    Json all = Json::array();
    for (const PastRun& run : runs) all.push_back(json_of(run));
    out << json_document(all);
  } else if (runs.empty()) {
    out << "there are no runs in '" << one_line(args.folder.string()) << "'\n";
  } else {
    out << fitted(table_of(runs), 40);
  }
  for (const std::string& problem : problems) print_sentence(problem);
  return 0;
}

int show_run(const RunsArgs& args, std::ostream& out) {
  const PastRun run = read_past_run(named_run(args, args.runs.front()), Rows::all);
  if (args.html) {
    const fs::path file = args.html_file.empty() ? run.folder / kReportFile : args.html_file;
    replace_durably(fs::absolute(file), report_page(run));
    out << file.string() << '\n';
    return 0;
  }
  if (!args.html_file.empty()) ddh::fail(DDH_INVALID_ARGUMENT, "--out is the file of a page; add --html");
  if (args.json) {
    Json json = json_of(run);
    json["config"] = run.config;
    json["starts"] = run.starts;
    json["summary"] = run.summary;
    json["warnings"] = warnings_of(run);
    out << json_document(json);
    return 0;
  }
  out << text_of(run);
  return 0;
}

int runs_command(const RunsArgs& args, std::ostream& out) {
  switch (args.action) {
    case RunsAction::kList:
      return list_runs(args, out);
    case RunsAction::kShow:
      return show_run(args, out);
    case RunsAction::kTail:
      return tail_run(args, out);
    case RunsAction::kPlot:
      return plot_runs(args, out);
    case RunsAction::kDiff:
      return diff_runs(args, out);
    case RunsAction::kRemove:
      break;
  }
  return remove_runs(args, out);
}

}  // namespace ddhost
