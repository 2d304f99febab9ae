// SPDX-License-Identifier: Apache-2.0
#include "report/run_tables.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "draw/text.hpp"

namespace ddhost {
namespace {

constexpr size_t kMostRanks = 32;

// A number inside objects: number_in(rank, {"memory_bytes", "param", "peak"}). Nothing if it is not there.
std::optional<double> number_in(const Json& json, const std::vector<std::string>& path) {
  const Json* at = &json;
  for (const std::string& name : path) {
    if (!at->is_object() || !at->contains(name)) return std::nullopt;
    at = &(*at)[name];
  }
  return at->is_number() ? std::optional(at->get<double>()) : std::nullopt;
}

std::string bytes_or_dash(const std::optional<double>& bytes) {
  return bytes && *bytes >= 0 && *bytes < 9e18 ? bytes_text(static_cast<uint64_t>(*bytes)) : "-";
}

std::string text_in(const Json& json, const char* key) {
  const Json value = json.is_object() ? json.value(key, Json()) : Json();
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "" : shown(value);
}

// The ranks of the summary, or, after a failure, what the launcher knows of them.
std::vector<Json> ranks_of(const PastRun& run) {
  std::vector<Json> out;
  const Json at_failure =
      run.start().value("ranks", Json());  // then the summary, if there is one, is of an earlier start
  const Json ranks = at_failure.is_array()     ? at_failure
                     : run.summary.is_object() ? run.summary.value("ranks", Json())
                                               : Json();
  if (!ranks.is_array()) return out;
  for (const Json& rank : ranks) out.push_back(rank);
  return out;
}

// The page of a run that is going on shows the ranks of one host, whose first may have another number than 0.
int64_t number_of(const std::vector<Json>& ranks, size_t at) {
  const auto number = number_in(ranks[at], {"rank"});
  return number && *number >= 0 && *number < 1e9 ? static_cast<int64_t>(*number) : static_cast<int64_t>(at);
}

// The names in an object of the first rank: tags, or parts of the time.
std::vector<std::string> names_in(const std::vector<Json>& ranks, const char* object) {
  constexpr size_t kMost = 16;
  std::vector<std::string> names;
  if (ranks.empty() || !ranks.front().is_object()) return names;
  const Json first = ranks.front().value(object, Json());
  if (!first.is_object()) return names;
  for (const auto& [name, value] : first.items())
    if (names.size() < kMost) names.push_back(name);
  return names;
}

std::optional<double> sum_of(const Json& rank, const std::vector<std::string>& tags) {
  std::optional<double> sum;
  for (const std::string& tag : tags)
    if (const auto bytes = number_in(rank, {"memory_bytes", tag, "peak"})) sum = sum.value_or(0) + *bytes;
  return sum;
}

// Seconds between two times of run.json; nothing if they can't be read.
std::optional<double> seconds_between(const std::string& from, const std::string& to) {
  const auto read = [](const std::string& text) -> std::optional<double> {
    std::tm parts{};
    if (::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts) == nullptr) return std::nullopt;
    return static_cast<double>(::timegm(&parts));
  };
  const auto begin = read(from), end = read(to);
  return begin && end && *end >= *begin ? std::optional(*end - *begin) : std::nullopt;
}

// What was planned for a tag on rank 0.
std::optional<double> planned(const PastRun& run, const Json& rank, const std::string& tag) {
  if (const auto bytes = number_in(rank, {"plan_bytes", tag})) return bytes;
  const Json estimates = run.summary.is_object() ? run.summary.value("estimates", Json()) : Json();
  std::optional<double> most;
  if (tag == "act" && estimates.is_array())
    for (const Json& one : estimates)
      if (const auto bytes = number_in(one, {"activation_bytes"})) most = std::max(most.value_or(0), *bytes);
  return most;
}

}  // namespace

std::string value_text(const std::optional<double>& value) {
  if (!value) return "-";
  return std::isfinite(*value) && std::fabs(*value) >= 1e-3 && std::fabs(*value) < 1e4
             ? [&] {
                 std::array<char, 32> text{};
                 std::snprintf(text.data(), text.size(), "%.4f", *value);
                 return std::string(text.data());
               }()
             : short_number(*value);
}

std::string rate_text(const PastRun& run) {
  return run.items_per_s > 0 ? short_number(run.items_per_s) + " " + run.items + "/s" : "-";
}

Table facts_table(const PastRun& run) {
  Table table{{"", ""}, {}, 2};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) table.rows.push_back({name, value});
  };
  const Json last = run.start();
  add("folder", run.folder.string());
  add("began", run.began + " UTC" + (run.starts.size() > 1 ? ddh::str(", started ", run.starts.size(), " times") : ""));
  if (const auto seconds = seconds_between(text_in(last, "began"), text_in(last, "ended")))
    add("time", duration(*seconds));
  add("model", run.plugin("model.plugin") + " " + run.option("model.size"));
  add("strategy", run.plugin("strategy.plugin") +
                      (run.ranks() > 0 ? " on " + counted(static_cast<uint64_t>(run.ranks()), "rank") : ""));
  add("optimizer", run.plugin("optimizer.plugin") + ", lr " + run.option("optimizer.lr"));
  add("steps", ddh::str(run.last_step, run.option("train.steps").empty() ? "" : " of " + run.option("train.steps")));
  if (run.loss) add("last loss", value_text(run.loss));
  if (run.best) add("best", ddh::str(run.best->name, " ", value_text(run.best->value), " at step ", run.best->step));
  if (run.items_per_s > 0) add("throughput", rate_text(run) + ", all ranks, without the first step");
  add("size", bytes_text(run.bytes));
  return table;
}

Table given_table(const PastRun& run) {
  constexpr size_t kMostRows = 300;
  Table table{{"option", "value", "default", "given by"}, {}, 4};
  const Json given = run.start().value("given", Json());
  if (!given.is_array()) return table;
  for (const Json& one : given) {
    const std::string key = text_in(one, "key");
    if (key.empty() || table.rows.size() == kMostRows) continue;
    table.rows.push_back({key, shown(run.value(key)), shown(one.value("default", Json())), text_in(one, "source")});
  }
  return table;
}

Table ranks_table(const PastRun& run) {
  const std::vector<Json> ranks = ranks_of(run);
  const std::vector<std::string> tags = names_in(ranks, "memory_bytes"), parts = names_in(ranks, "time_ms");
  Table table{{"rank"}, {}, 1};
  for (const std::string& tag : tags) table.head.push_back(tag);
  table.head.insert(table.head.end(), {"all tags", "PSS", "peak RSS"});
  for (const std::string& part : parts) table.head.push_back(part + " s");
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks.size() > kMostRanks && r >= kMostRanks / 2 && r < ranks.size() - kMostRanks / 2) continue;
    std::vector<std::string> row = {std::to_string(number_of(ranks, r))};
    for (const std::string& tag : tags)
      row.push_back(bytes_or_dash(number_in(ranks[r], {"memory_bytes", tag, "peak"})));
    row.push_back(bytes_or_dash(sum_of(ranks[r], tags)));
    row.push_back(bytes_or_dash(number_in(ranks[r], {"process_bytes", "pss"})));
    row.push_back(bytes_or_dash(number_in(ranks[r], {"peak_rss_bytes"})));
    for (const std::string& part : parts) {
      const auto ms = number_in(ranks[r], {"time_ms", part});
      row.push_back(ms ? short_number(*ms / 1e3) : "-");
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table memory_table(const PastRun& run) {
  const std::vector<Json> ranks = ranks_of(run);
  Table table{{"tag", "plan", "lowest peak", "highest peak", "all ranks"}, {}, 1};
  for (const std::string& tag : names_in(ranks, "memory_bytes")) {
    std::optional<double> low, high;
    for (const Json& rank : ranks)
      if (const auto bytes = number_in(rank, {"memory_bytes", tag, "peak"})) {
        low = std::min(low.value_or(*bytes), *bytes);
        high = std::max(high.value_or(*bytes), *bytes);
      }
    table.rows.push_back({tag, bytes_or_dash(planned(run, ranks.front(), tag)), bytes_or_dash(low), bytes_or_dash(high),
                          bytes_or_dash(number_in(run.summary, {"unique_peak_bytes", tag}))});
  }
  return table;
}

std::string memory_html(const PastRun& run) {
  const std::vector<Json> ranks = ranks_of(run);
  const std::vector<std::string> tags = names_in(ranks, "memory_bytes");
  if (tags.empty()) return "<p>Not known: memory is written at the end of a run.</p>\n";
  struct Bar {
    std::optional<double> plan, peak;
  };
  std::vector<Bar> bars;
  double most = 1;
  for (const std::string& tag : tags) {
    Bar bar{planned(run, ranks.front(), tag), std::nullopt};
    for (const Json& rank : ranks)
      if (const auto bytes = number_in(rank, {"memory_bytes", tag, "peak"}))
        bar.peak = std::max(bar.peak.value_or(0), *bytes);
    most = std::max({most, bar.plan.value_or(0), bar.peak.value_or(0)});
    bars.push_back(bar);
  }
  constexpr double kWide = 560;
  const auto wide = [&](const std::optional<double>& bytes) {
    return ddh::str(std::lround(kWide * std::clamp(bytes.value_or(0) / most, 0.0, 1.0)));
  };
  std::string out = ddh::str("<svg viewBox=\"0 0 800 ", 44 * bars.size() + 8,
                             "\" width=\"800\" role=\"img\"><g font-size=\"12\" fill=\"currentColor\">\n");
  for (size_t i = 0; i < bars.size(); ++i) {
    const size_t y = 44 * i + 6;
    out += ddh::str("<text x=\"0\" y=\"", y + 20, "\">", escaped(tags[i]), "</text><rect x=\"70\" y=\"", y,
                    "\" height=\"14\" width=\"", wide(bars[i].plan), "\" fill=\"#8888\"/><text x=\"640\" y=\"", y + 12,
                    "\">plan ", bytes_or_dash(bars[i].plan), "</text><rect x=\"70\" y=\"", y + 16,
                    "\" height=\"14\" width=\"", wide(bars[i].peak), "\" fill=\"#2563c9\"/><text x=\"640\" y=\"",
                    y + 28, "\">peak ", bytes_or_dash(bars[i].peak), "</text>\n");
  }
  return out + "</g></svg>\n<p>Upper bar: what was planned for rank 0. " +
         "Lower bar: the highest peak of a rank.</p>\n" + as_html(memory_table(run));
}

std::string time_html(const PastRun& run) {
  constexpr std::array<const char*, 8> kPartColors = {"#8d99ae", "#0b8f9c", "#2563c9", "#7b3fb5",
                                                      "#d9730d", "#2b8a3e", "#c92a2a", "#8a6d1b"};
  const std::vector<Json> ranks = ranks_of(run);
  const std::vector<std::string> parts = names_in(ranks, "time_ms");
  if (parts.empty()) return "<p>Not known: times are written at the end of a run.</p>\n";
  const size_t n = std::min(ranks.size(), kMostRanks);
  std::string out = ddh::str("<svg viewBox=\"0 0 800 ", 24 * n + 34,
                             "\" width=\"800\" role=\"img\"><g font-size=\"12\" fill=\"currentColor\">\n");
  for (size_t r = 0; r < n; ++r) {
    double all = 0, x = 70;
    for (const std::string& part : parts) all += std::max(0.0, number_in(ranks[r], {"time_ms", part}).value_or(0));
    out += ddh::str("<text x=\"0\" y=\"", 24 * r + 15, "\">rank ", number_of(ranks, r), "</text>");
    for (size_t i = 0; i < parts.size() && all > 0; ++i) {
      const double ms = std::max(0.0, number_in(ranks[r], {"time_ms", parts[i]}).value_or(0)), wide = 700 * ms / all;
      out += ddh::str("<rect x=\"", std::lround(x), "\" y=\"", 24 * r + 2, "\" height=\"18\" width=\"",
                      std::lround(x + wide) - std::lround(x), "\" fill=\"", kPartColors[i % kPartColors.size()],
                      "\"><title>", escaped(parts[i]), " ", short_number(100 * ms / all), " %</title></rect>");
      x += wide;
    }
    out += '\n';
  }
  for (size_t i = 0; i < parts.size(); ++i)
    out += ddh::str("<rect x=\"", 70 + 100 * i, "\" y=\"", 24 * n + 12, "\" width=\"11\" height=\"11\" fill=\"",
                    kPartColors[i % kPartColors.size()], "\"/><text x=\"", 86 + 100 * i, "\" y=\"", 24 * n + 22, "\">",
                    escaped(parts[i], 40), "</text>\n");
  return out + "</g></svg>\n";
}

Table checkpoints_table(const PastRun& run) {
  constexpr size_t kMostRows = 100;
  Table table{{"checkpoint", "size", ""}, {}, 1};
  for (const SavedCheckpoint& one : run.checkpoints)
    if (table.rows.size() < kMostRows)
      table.rows.push_back({ddh::str("step-", one.step), bytes_text(one.bytes),
                            !one.is_whole ? "not complete"
                            : one.is_best ? "best"
                                          : ""});
  return table;
}

Table machine_table(const PastRun& run) {
  Table table{{"machine", ""}, {}, 2};
  const Json last = run.start(), machine = last.value("machine", Json());
  if (!machine.is_object()) return table;
  for (const auto& [name, value] : machine.items())
    table.rows.push_back(
        {name, name == "memory_bytes" ? bytes_or_dash(number_in(machine, {name})) : text_in(machine, name.c_str())});
  table.rows.push_back({"ddhost", text_in(last, "version")});
  return table;
}

Table plugins_table(const PastRun& run) {
  constexpr size_t kMostRows = 64;
  Table table{{"kind", "plugin", "version", "file"}, {}, 4};
  const Json plugins = run.start().value("plugins", Json());
  if (plugins.is_array())
    for (const Json& one : plugins)
      if (table.rows.size() < kMostRows)
        table.rows.push_back({text_in(one, "kind"), text_in(one, "id"), text_in(one, "version"), text_in(one, "file")});
  return table;
}

std::vector<std::string> warnings_of(const PastRun& run) {
  std::vector<std::string> out;
  const Json warnings = run.start().value("warnings", Json());
  if (warnings.is_array())
    for (const Json& one : warnings)
      if (one.is_string() && out.size() < 50) out.push_back(one.get<std::string>());
  out.insert(out.end(), run.log.begin(), run.log.end());
  return out;
}

Json json_of(const PastRun& run) {
  Json out = {{"name", run.name}, {"folder", run.folder.string()}, {"state", run.state()}, {"began", run.began}};
  for (const char* key : {"model.plugin", "strategy.plugin", "optimizer.plugin"})
    out[std::string(key).substr(0, std::string_view(key).find('.'))] = run.option(key);
  out["ranks"] = run.ranks();
  out["steps"] = run.last_step;
  out["loss"] = run.loss ? Json(*run.loss) : Json();
  out["best"] =
      run.best ? Json({{"name", run.best->name}, {"step", run.best->step}, {"value", run.best->value}}) : Json();
  out["items"] = run.items;
  out["items_per_s"] = run.items_per_s;
  out["bytes"] = run.bytes;
  out["checkpoints"] = Json::array();
  for (const SavedCheckpoint& one : run.checkpoints)
    out["checkpoints"].push_back(
        {{"step", one.step}, {"bytes", one.bytes}, {"best", one.is_best}, {"complete", one.is_whole}});
  out["sentence"] = run.start().value("sentence", Json());
  out["notes"] = run.notes;
  return out;
}

std::string table_or_nothing(const Table& table) { return table.rows.empty() ? "" : as_html(table); }

}  // namespace ddhost
