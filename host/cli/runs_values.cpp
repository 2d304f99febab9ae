// SPDX-License-Identifier: Apache-2.0
//
// cli/runs_values.cpp: `ddhost runs tail`, `ddhost runs plot` and `ddhost runs diff`.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <sstream>
#include <thread>

#include "base/durable.hpp"
#include "base/terminal.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/runs.hpp"
#include "ddh/sdk/plugin.hpp"
#include "draw/table.hpp"
#include "draw/text.hpp"
#include "report/followed_run.hpp"
#include "report/past_run.hpp"
#include "report/run_diff.hpp"
#include "report/run_tables.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

std::string text_of(const MetricsRow& row) {
  std::string out = ddh::str("step ", row.step, row.program.empty() ? "" : "  " + one_line(row.program));
  for (const auto& [name, value] : row.values)
    if (name != "skipped" || value != 0) out += ddh::str("  ", one_line(name), " ", short_number(value));
  return out + "\n";
}

Json json_of(const MetricsRow& row) {
  Json out = {{"step", row.step}};
  if (!row.program.empty()) out["program"] = row.program;
  for (const auto& [name, value] : row.values) out[name] = value;
  return out;
}

void print_row(const MetricsRow& row, bool json, std::ostream& out) {
  out << (json ? json_line(json_of(row)) + "\n" : fitted(text_of(row)));
}

bool is_dumb() {
  const char* const terminal = std::getenv("TERM");
  return terminal != nullptr && std::string_view(terminal) == "dumb";
}

bool takes_color() {
  const char* const off = std::getenv("NO_COLOR");
  return ::isatty(STDOUT_FILENO) != 0 && (off == nullptr || *off == '\0') && !is_dumb();
}

// "loss,val_loss" or "loss val_loss".
std::vector<std::string> words_in(std::string text) {
  std::vector<std::string> out;
  for (char& c : text)
    if (c == ',') c = ' ';
  std::istringstream in(text);
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

// Curves of a run that a metric names: "loss" is also that of each program.
std::vector<const Curve*> curves_named(const PastRun& run, const std::string& metric) {
  std::vector<const Curve*> out;
  for (const Curve& curve : run.curves)
    if (curve.name() == metric || curve.name().ends_with(": " + metric)) out.push_back(&curve);
  return out;
}

Chart chart_of(const RunsArgs& args, const std::vector<PastRun>& runs) {
  constexpr size_t kPoints = 2000;
  const std::vector<std::string> metrics = words_in(args.metrics.empty() ? "loss,val_loss" : args.metrics);
  Chart chart{"", {}, args.is_logarithmic};
  std::vector<std::string> known;
  for (const std::string& metric : metrics) {
    chart.title += (chart.title.empty() ? "" : ", ") + metric;
    for (const PastRun& run : runs)
      for (const Curve* curve : curves_named(run, metric))
        chart.lines.push_back(
            {runs.size() > 1 ? run.name + ": " + curve->label() : curve->label(), curve->points(kPoints)});
  }
  if (!chart.lines.empty()) return chart;
  std::string there;
  for (const PastRun& run : runs)
    for (const Curve& curve : run.curves)
      if (there.find(curve.name()) == std::string::npos) there += (there.empty() ? "" : ", ") + one_line(curve.name());
  ddh::fail(DDH_NOT_FOUND, "no run has values of '", one_line(chart.title), "'; ",
            there.empty() ? "they have written none" : "they have: " + plain_text(there, kShownValue * 2));
}

// For a terminal that can't show a picture.
std::string as_list(const Chart& chart) {
  constexpr size_t kRows = 20;
  std::string out;
  for (const Chart::Line& line : chart.lines) {
    out += one_line(line.name) + "\n";
    const size_t every = (line.points.size() + kRows - 1) / kRows;
    for (size_t i = 0; i < line.points.size(); i += std::max<size_t>(every, 1))
      out += ddh::str("  step ", number_text(line.points[i].x), "  ", short_number(line.points[i].y), "\n");
  }
  return out;
}

// A text without its quotes; "-" where this run has none.
std::string side_text(const Json& one, const char* side) {
  if (!one.contains(side)) return "-";
  const Json& value = one.at(side);
  return value.is_string() && !value.get_ref<const std::string&>().empty() ? value.get<std::string>() : shown(value);
}

std::string diff_text(const Json& diff, const PastRun& a, const PastRun& b) {
  std::string out;
  for (const char* part : {"options", "plugins", "machine"}) {
    Table table{{part, one_line(a.name), one_line(b.name)}, {}, 3};
    for (const Json& one : diff.at(part))
      table.rows.push_back({one.at("key").get<std::string>(), side_text(one, "a"), side_text(one, "b")});
    out += table.rows.empty() ? ddh::str(part, ": the same\n") : fitted(table) + "\n";
  }
  const Json& values = diff.at("values");
  const Json& first = values.at("first");
  if (values.at("compared") == 0)
    out += "values: the runs have no rows of the same step\n";
  else if (first.is_null())
    out += ddh::str("values: the same bits in all ", values.at("compared").get<int64_t>(), " rows that both have\n");
  else
    out += ddh::str("values: ", first.at("evaluation") == true ? "the evaluation after step " : "step ",
                    first.at("step").get<int64_t>(), " is the first that differs; ", values.at("equal").get<int64_t>(),
                    " of ", values.at("compared").get<int64_t>(), " rows have the same bits\n");
  if (!first.is_null()) {
    Table table{{"  value", one_line(a.name), one_line(b.name)}, {}, 1};
    for (const Json& one : first.at("values"))
      table.rows.push_back({"  " + one.at("name").get<std::string>(), side_text(one, "a"), side_text(one, "b")});
    out += fitted(table);
  }
  for (const auto& [key, run] : {std::pair("only_a", &a), std::pair("only_b", &b)})
    if (const auto only = values.at(key).get<int64_t>(); only > 0)
      out += ddh::str("only in ", one_line(run->name), ": ", counted(static_cast<uint64_t>(only), "row"), "\n");
  return out;
}

}  // namespace

int tail_run(const RunsArgs& args, std::ostream& out) {
  constexpr std::chrono::milliseconds kPause{300};
  const fs::path folder = named_run(args, args.runs.front());
  std::deque<MetricsRow> rows;
  FollowedFile file;
  Json summary;
  bool is_known = false;  // what the file has; a run that starts again may take rows back
  const auto read = [&] {
    uint64_t pending = 0;
    is_known = file.look(rows_file(folder), pending) && is_known;
    if (pending == 0) return;
    const size_t most = is_known ? SIZE_MAX : args.last > 0 ? args.last : 10;
    is_known = true;
    file.read(rows_file(folder), pending, [&](const std::string& line) {
      if (std::optional<MetricsRow> row = row_of_line(line, summary)) rows.push_back(*std::move(row));
      if (rows.size() > most) rows.pop_front();
    });
    for (const MetricsRow& row : rows) print_row(row, args.json, out);
    rows.clear();
    if (!out.flush()) throw OutputError();
  };
  bool alive = args.follow && is_alive(folder);
  read();
  while (alive) {
    std::this_thread::sleep_for(kPause);
    alive = is_alive(folder);
    read();
  }
  const PastRun run = read_past_run(folder, Rows::few);
  if (!args.json) out << "state: " << run.state() << '\n';
  if (!args.json)
    for (const std::string& note : run.notes) out << "note: " << shown_text(note) << '\n';
  return 0;
}

int plot_runs(const RunsArgs& args, std::ostream& out) {
  std::vector<PastRun> runs;
  for (const std::string& word : args.runs) runs.push_back(read_past_run(named_run(args, word), Rows::all));
  const Chart chart = chart_of(args, runs);
  if (args.json) {
    Json json = Json::array();
    for (const Chart::Line& line : chart.lines) {
      Json points = Json::array();
      for (const Point& point : line.points) points.push_back({point.x, point.y});
      json.push_back({{"name", line.name}, {"points", points}});
    }
    out << json_line(json) << '\n';
  } else if (!args.svg_file.empty()) {
    replace_durably(fs::absolute(args.svg_file), as_svg(chart, 900, 420, /*is_file=*/true));
    out << args.svg_file.string() << '\n';
  } else if (is_dumb()) {
    out << as_list(chart);
  } else {
    const size_t columns = terminal_columns(STDOUT_FILENO, columns_of_environment(80));
    out << as_braille(chart, args.width > 0 ? args.width : columns, args.height, takes_color());
  }
  return 0;
}

int diff_runs(const RunsArgs& args, std::ostream& out) {
  const PastRun a = read_past_run(named_run(args, args.runs.at(0)), Rows::few),
                b = read_past_run(named_run(args, args.runs.at(1)), Rows::few);
  const Json diff = run_diff(a, b);
  out << (args.json ? json_document(diff) : fitted(diff_text(diff, a, b)));
  return diff.at("values").at("first").is_null() ? 0 : 1;
}

}  // namespace ddhost
