// SPDX-License-Identifier: Apache-2.0
//
// report/comparison_page.cpp: a comparison as a page of HTML, with bars.
#include <algorithm>
#include <cmath>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "draw/text.hpp"
#include "report/comparison.hpp"
#include "report/page.hpp"

namespace ddhost {
namespace {

struct NamedValue {
  std::string name, text;
  double value = 0;
};

std::string bar_chart(const std::string& title, const std::vector<NamedValue>& bars) {
  double most = 0;
  for (const NamedValue& bar : bars) most = std::max(most, bar.value);
  std::string out =
      ddh::str("<svg viewBox=\"0 0 560 ", 26 * bars.size() + 30,
               "\" width=\"560\" role=\"img\"><g font-size=\"12\" fill=\"currentColor\">\n<text x=\"0\" y=\"14\" ",
               "font-weight=\"600\">", escaped(title), "</text>\n");
  for (size_t i = 0; i < bars.size(); ++i) {
    const size_t y = 26 * i + 26;
    const long wide = most > 0 ? std::lround(300 * std::clamp(bars[i].value / most, 0.0, 1.0)) : 0;
    out += ddh::str("<text x=\"0\" y=\"", y + 14, "\">", escaped(bars[i].name, 40), "</text><rect x=\"120\" y=\"", y,
                    "\" height=\"19\" width=\"", wide, "\" fill=\"#2563c9\"/><text x=\"", 128 + wide, "\" y=\"", y + 14,
                    "\">", escaped(bars[i].text), "</text>\n");
  }
  return out + "</g></svg>\n";
}

std::string charts_of_group(const std::vector<Measured>& all, const std::string& group) {
  std::vector<NamedValue> speed, tags, pss;
  std::string items;
  for (const Measured& one : all) {
    if (!one.is_there() || one.of.group() != group) continue;
    items = one.items;
    const auto bytes = [](double value) { return bytes_text(static_cast<uint64_t>(std::max(0.0, value))); };
    speed.push_back({one.of.name(), short_number(one.speed()), one.speed()});
    tags.push_back({one.of.name(), bytes(one.tags_of_rank), one.tags_of_rank});
    pss.push_back({one.of.name(), bytes(one.pss), one.pss});
  }
  if (speed.empty()) return "";
  return "<div class=\"charts\">\n" + bar_chart(items + " per second, all ranks", speed) +
         bar_chart("tagged memory of a rank, at its peak", tags) + bar_chart("memory of all processes (PSS)", pss) +
         "</div>\n";
}

}  // namespace

std::string comparison_html(const std::vector<ComparedGroup>& groups, const std::vector<Measured>& all) {
  std::vector<std::string> names;
  for (const Measured& one : all)
    if (std::find(names.begin(), names.end(), one.of.group()) == names.end()) names.push_back(one.of.group());
  std::string body = "<h1>Comparison of strategies</h1>\n";
  for (size_t g = 0; g < groups.size(); ++g) {
    const ComparedGroup& group = groups[g];
    body += "<h2>" + escaped(group.title) + "</h2>\n" + charts_of_group(all, names[g]);
    if (!group.speed.rows.empty()) body += as_html(group.speed) + as_html(group.memory);
    body += "<ul>\n";
    for (const std::string& line : group.advice) body += "<li>" + escaped(line, kShownSentence) + "</li>\n";
    body += "</ul>\n";
  }
  return html_page("Comparison of strategies", body);
}

}  // namespace ddhost
