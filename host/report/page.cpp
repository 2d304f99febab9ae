// SPDX-License-Identifier: Apache-2.0
#include "report/page.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/child_process.hpp"
#include "base/durable.hpp"
#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "draw/table.hpp"
#include "draw/text.hpp"
#include "report/run_tables.hpp"

namespace ddhost {
namespace {

constexpr size_t kMostBytes = 300'000;

constexpr const char* kStyle = R"(
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:96rem;padding:0 1rem}
h1{margin-bottom:.2rem}h2{margin-top:2.2rem;border-bottom:1px solid #8886}
table{border-collapse:collapse;margin:.6rem 0;display:block;overflow-x:auto}
td,th{padding:.18rem .7rem;border-bottom:1px solid #8883;text-align:left;white-space:nowrap}
.n{text-align:right;font-variant-numeric:tabular-nums}
svg{max-width:100%;height:auto;margin:.3rem}
.charts{display:flex;flex-wrap:wrap}
.state{border-radius:.3rem;padding:.1rem .5rem;color:#fff;background:#667}
.done{background:#2b8a3e}.failed{background:#c92a2a}.stopped,.unfinished{background:#b85f00}.running{background:#2563c9}
.note{border-left:4px solid #b85f00;padding-left:.7rem}
.bad{border-left:4px solid #c92a2a;padding-left:.7rem}
code,pre{font:13px/1.4 ui-monospace,monospace}pre{overflow-x:auto}
)";

std::string section(const char* title, const std::string& body) {
  return body.empty() ? "" : ddh::str("<section>\n<h2>", title, "</h2>\n", body, "</section>\n");
}

std::string lines(const char* of_class, const std::vector<std::string>& all) {
  std::string out;
  for (const std::string& line : all) out += ddh::str("<p class=\"", of_class, "\">", escaped(line, 1600), "</p>\n");
  return out;
}

// Curves that belong together are in one chart: a value and that of its evaluations, of all programs.
std::vector<Chart> charts_of(const PastRun& run, size_t points) {
  constexpr size_t kMostCharts = 24, kMostLines = 8;
  std::vector<Chart> charts;
  for (const Curve& curve : run.curves) {
    std::string title = curve.name();
    if (const size_t colon = title.rfind(": "); colon != std::string::npos) title = title.substr(colon + 2);
    if (title.starts_with("val_")) title = title.substr(4);
    auto at = std::find_if(charts.begin(), charts.end(), [&](const Chart& chart) { return chart.title == title; });
    if (at == charts.end()) {
      if (charts.size() == kMostCharts) continue;
      charts.push_back({title, {}, false});
      at = charts.end() - 1;
    }
    if (at->lines.size() < kMostLines) at->lines.push_back({curve.label(), curve.points(points)});
  }
  return charts;
}

std::string curves_html(const PastRun& run, size_t points) {
  std::string out;
  for (const Chart& chart : charts_of(run, points)) out += as_svg(chart, 560, 260, /*is_file=*/false);
  return out.empty() ? "<p>The run has written no values.</p>\n" : "<div class=\"charts\">\n" + out + "</div>\n";
}

std::string heading(const PastRun& run) {
  const std::string state = run.state();
  std::string out = ddh::str("<h1>", escaped(run.name), " <span class=\"state ", state, "\">", state, "</span></h1>\n");
  const Json last = run.start();
  if (const Json sentence = last.value("sentence", Json()); sentence.is_string())
    out += lines("bad", {sentence.get<std::string>()});
  return out + as_html(facts_table(run));
}

std::string configuration(const PastRun& run) {
  std::string out;
  const Table given = given_table(run);
  out += given.rows.empty() ? "<p>The folder does not say which options differ from their defaults.</p>\n"
                            : as_html(given);
  constexpr size_t kMostConfig = 40'000;
  const std::string all = run.config.dump(1, ' ', false, Json::error_handler_t::replace);
  std::string shown;
  for (size_t begin = 0; begin < std::min(all.size(), kMostConfig);) {
    const size_t end = std::min(all.find('\n', begin), all.size());
    shown += escaped(std::string_view(all).substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  return out + "<details><summary>All options</summary><pre>" + shown + "</pre></details>\n";
}

std::string page_with(const PastRun& run, size_t points) {
  return html_page(escaped(run.name), report_body(run, points));
}

}  // namespace

std::string report_body(const PastRun& run, size_t points) {
  std::string body = "<section>\n" + heading(run) + lines("note", run.notes) + "</section>\n";
  body += section("Curves", curves_html(run, points));
  body += section("Memory", memory_html(run));
  body += section("Time", time_html(run));
  body += section("Ranks", table_or_nothing(ranks_table(run)));
  body += section("Options that differ from their defaults", configuration(run));
  body += section("Warnings", lines("note", warnings_of(run)));
  body += section("Checkpoints", table_or_nothing(checkpoints_table(run)));
  body += section("Machine and plugins", table_or_nothing(machine_table(run)) + table_or_nothing(plugins_table(run)));
  return body;
}

std::string html_page(const std::string& title, const std::string& body, const std::string& script) {
  const bool has_script = !script.empty();
  return ddh::str(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n",
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'",
      has_script ? "; script-src 'self'; connect-src 'self'" : "", "\">\n",
      "<meta name=\"viewport\" content=\"width=device-width\"><title>", title, "</title>\n<style>", kStyle, "</style>",
      has_script ? "<script src=\"" + script + "\" defer></script>" : "", "</head><body>\n", body,
      "<footer><p>ddhost " DDHOST_VERSION "</p></footer>\n</body></html>\n");
}

std::string report_page(const PastRun& run) {
  std::string page;
  for (size_t points = 500; points >= 8; points /= 2) {
    page = page_with(run, points);
    if (page.size() < kMostBytes) return page;
  }
  PastRun small = run;
  small.curves.clear();
  small.config = Json::object();
  small.notes.push_back("curves and options are left out, because the page would have more than 300 KB");
  return page_with(small, 1);
}

std::string write_report(const std::filesystem::path& folder) {
  constexpr std::chrono::seconds kMost{60};
  try {
    ChildProcess child("to write '" + (folder / kReportFile).string() + "'", [&]() -> std::string {
      try {
        replace_durably(folder / kReportFile, report_page(read_past_run(folder, Rows::all)));
        return "done";
      } catch (const std::exception& error) {
        return sentence_of(error);
      }
    });
    const std::optional<std::string> answer = child.answer(ChildProcess::Clock::now() + kMost);
    if (!answer)
      return child.is_silent() ? "its process ended early" : ddh::str("it took more than ", kMost.count(), " s");
    return *answer == "done" ? "" : *answer;
  } catch (const std::exception& error) {
    return sentence_of(error);
  }
}

}  // namespace ddhost
