// SPDX-License-Identifier: Apache-2.0
//
// Texts of unknown origin in lines, pages and tables; curves in bounded memory; charts.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "base/terminal.hpp"
#include "base/text.hpp"
#include "draw/curve.hpp"
#include "draw/table.hpp"
#include "draw/text.hpp"

using namespace ddhost;

TEST_CASE("a text of unknown origin becomes one safe line", "[draw]") {
  CHECK(one_line("plain \xC3\xA9") == "plain \xC3\xA9");
  CHECK(one_line("a\x1b[31m\nb\xff") == "a\\x1b[31m\\x0ab\\xff");
  CHECK(one_line("a\u202Eb") == "a\\u202eb");
  CHECK(escaped("<script>\"&'") == "&lt;script&gt;&quot;&amp;&#39;");
  CHECK(is_utf8(one_line(std::string(5000, '\xE4'), 300)));
  CHECK(one_line(std::string(5000, 'x'), 300).size() < 400);
}

TEST_CASE("lines are measured and cut in columns of a terminal", "[draw]") {
  CHECK(columns_of("abc") == 3);
  CHECK(columns_of("日本") == 4);
  CHECK(columns_of("e\u0301") == 1);
  CHECK(cut_to("abcdef", 4) == "abc…");
  CHECK(columns_of(cut_to("日本日本", 6)) <= 6);
  CHECK(cut_to("abc", 0).empty());
}

TEST_CASE("times are read with their unit only", "[draw]") {
  CHECK(seconds_from_text("10m") == 600.0);
  CHECK(seconds_from_text("1.5h") == 5400.0);
  CHECK(seconds_from_text("2w") == 1209600.0);
  for (const char* bad : {"", "10", "m", "-1m", "1y", "nanm", "1e99d", "10 m"}) CHECK_FALSE(seconds_from_text(bad));
}

TEST_CASE("a table has four forms, each with its own escapes", "[draw]") {
  const Table table{{"name", "n"}, {{"a|b<c>", "1"}, {"d,\"e\"", "22"}}, 1};
  CHECK(as_text(table) == "name     n\na|b<c>   1\nd,\"e\"   22\n");
  CHECK(as_markdown(table) == "| name | n |\n|---|---:|\n| a\\|b&lt;c&gt; | 1 |\n| d,&quot;e&quot; | 22 |\n");
  CHECK(as_csv(table) == "name,n\r\na|b<c>,1\r\n\"d,\"\"e\"\"\",22\r\n");
  CHECK(as_html(table).find("<c>") == std::string::npos);
}

TEST_CASE("columns that do not fit follow below, and long cells are cut", "[draw]") {
  const Table table{{"run", "loss", "speed", "memory"}, {{"a", "1.5", "200/s", "3 MB"}, {"b", "2", "9/s", "12 MB"}}, 1};
  CHECK(as_text(table, 60, 26) == as_text(table));
  CHECK(as_text(table, 60, 17) ==
        "run  loss  speed\na     1.5  200/s\nb       2    9/s\nrun  memory\na      3 MB\nb     12 MB\n");
  CHECK(as_text(table, 60, 1).find("run  memory\n") != std::string::npos);  // a column at a time
  const Table facts{{"folder", std::string(50, 'x')}, {}, 2};
  CHECK(as_text(facts, 100, 30) == "folder  " + std::string(21, 'x') + "…\n");
}

TEST_CASE("a curve of any length stays small, and keeps its extremes and its last value", "[draw]") {
  Curve curve("loss");
  for (int64_t step = 1; step <= 300'000; ++step)
    curve.add(step, step == 123'456 ? -5 : 1 + 1.0 / static_cast<double>(step));
  curve.add(300'001, std::numeric_limits<double>::quiet_NaN());
  CHECK(curve.count() == 300'000);
  CHECK(curve.label() == "loss (1 not finite)");
  REQUIRE(curve.lowest());
  CHECK(curve.lowest()->x == 123'456);
  CHECK(curve.highest()->y == 2);
  const std::vector<Point> points = curve.points(200);
  CHECK(points.size() <= 210);
  CHECK(points.back().x == 300'000);
  for (size_t i = 1; i < points.size(); ++i) CHECK(points[i - 1].x < points[i].x);
}

TEST_CASE("a chart is drawn for any values and any width", "[draw]") {
  Chart chart{"<title>", {{"a", {{1, 1}, {2, 3}, {3, 2}}}, {"b\x1b", {{1, 0}}}}, false};
  for (const size_t columns : {1, 19, 20, 80, 200}) {
    const std::string text = as_braille(chart, columns, 8, /*color=*/false);
    CHECK(is_utf8(text));
    CHECK(text.find('\x1b') == std::string::npos);
    for (size_t begin = 0; begin < text.size() && columns >= 20;) {
      const size_t end = text.find('\n', begin);
      CHECK(columns_of(text.substr(begin, end - begin)) <= columns);
      begin = end + 1;
    }
  }
  CHECK(as_braille(chart, 80, 8, false).find("2 ┤") != std::string::npos);
  const std::string marked = as_braille(chart, 80, 8, false);  // of several lines without colors
  CHECK(marked.find("  * a: 2\n") != std::string::npos);
  CHECK(marked.find("  o b") != std::string::npos);
  const std::string svg = as_svg(chart, 600, 300, /*is_file=*/true);
  CHECK(svg.find("<title>") == std::string::npos);
  CHECK(svg.find("&lt;title&gt;") != std::string::npos);
  const double huge = std::numeric_limits<double>::max(), tiny = std::numeric_limits<double>::denorm_min();
  for (const auto& points :
       std::vector<std::vector<Point>>{{}, {{5, 0}}, {{1, huge}, {2, -huge}}, {{1, tiny}, {2, 0}}, {{1, 7}, {2, 7}}})
    for (const bool log : {false, true}) {
      const Chart odd{"odd", {{"a", points}}, log};
      CHECK(is_utf8(as_braille(odd, 60, 5, true)));
      const std::string picture = as_svg(odd, 600, 300, true);
      CHECK(picture.find("nan") == std::string::npos);
      CHECK(picture.find("inf") == std::string::npos);
    }
}
