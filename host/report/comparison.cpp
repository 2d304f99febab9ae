// SPDX-License-Identifier: Apache-2.0
#include "report/comparison.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>

#include "base/terminal.hpp"
#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "draw/text.hpp"
#include "report/past_run.hpp"

namespace ddhost {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n == 0 ? 0 : n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

std::string percent(double part) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %%", 100 * part);
  return text.data();
}

std::string times(double factor) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2fx", factor);
  return text.data();
}

std::string bytes_of_value(double bytes) {
  return bytes > 0 && bytes < 9e18 ? bytes_text(static_cast<uint64_t>(bytes)) : "-";
}
std::string part_of(double value, double base) { return value > 0 && base > 0 ? percent(value / base) : "-"; }

double number_at(const Json& json, const char* key) {
  const Json value = json.is_object() ? json.value(key, Json()) : Json();
  return value.is_number() ? value.get<double>() : 0.0;
}

// Memory and bytes sent, from the summary of a run.
void add_summary(Measured& to, const Json& summary) {
  to.tags.clear();
  to.tags_of_rank = to.tags_of_all = to.pss = 0;
  const Json ranks = summary.value("ranks", Json::array());
  for (const Json& rank : ranks) {
    double all = 0;
    std::vector<std::pair<std::string, double>> tags;
    const Json memory = rank.value("memory_bytes", Json::object());
    for (const auto& [tag, bytes] : memory.items()) {
      tags.emplace_back(tag, number_at(bytes, "peak"));
      all += tags.back().second;
    }
    if (all >= to.tags_of_rank) {
      to.tags_of_rank = all;
      to.tags = tags;
    }
    to.pss += number_at(rank.value("process_bytes", Json()), "pss");
  }
  const Json unique = summary.value("unique_peak_bytes", Json::object());
  for (const auto& [tag, bytes] : unique.items())
    if (bytes.is_number()) to.tags_of_all += bytes.get<double>();
  const Json counters = summary.value("counters", Json::object());
  to.sent_per_step.reset();
  if (counters.is_object() && counters.contains("comm.sent_bytes") && to.steps > 0)
    to.sent_per_step = number_at(counters, "comm.sent_bytes") / static_cast<double>(to.steps);
}

// "same bits", or the first step that differs from the base.
std::string values_text(const Measured& base, const Measured& one) {
  if (one.rounds_differ) return "rounds differ";
  if (&base == &one) return "base";
  const size_t n = std::min(base.values.size(), one.values.size());
  for (size_t i = 0; i < n; ++i)
    if (base.values[i] != one.values[i])
      return ddh::str("step ", one.values[i].first, " differs by ",
                      short_number(std::fabs(one.losses[i] - base.losses[i])));
  return n == 0 ? "-" : ddh::str("same bits, ", n, " steps");
}

// Differences below this part are no differences of these two. One round has no spread.
double noise_of(const Measured& a, const Measured& b) {
  const bool has_one = a.items_per_s.size() < 2 || b.items_per_s.size() < 2;
  return std::max({a.spread(), b.spread(), has_one ? 0.1 : 0.01});
}

// Memory that is equal but for what caches and transports round.
constexpr double kSameMemory = 0.01;

// A case that another one beats in memory or in speed, and is not worse in the other; nullptr: none does.
const Measured* better_than(const std::vector<const Measured*>& all, const Measured& one) {
  const Measured* best = nullptr;
  for (const Measured* other : all) {
    if (other == &one) continue;
    const bool is_as_small = other->tags_of_rank <= one.tags_of_rank * (1 + kSameMemory);
    const bool is_smaller = other->tags_of_rank < one.tags_of_rank * (1 - kSameMemory);
    const bool is_as_fast = other->speed() >= one.speed() * 0.99;
    const bool is_faster = other->speed() > one.speed() * (1 + noise_of(one, *other));
    if (is_as_small && is_as_fast && (is_smaller || is_faster) && (best == nullptr || other->speed() > best->speed()))
      best = other;
  }
  return best;
}

// The strategy alone where no other case has it.
std::string name_among(const std::vector<const Measured*>& all, const Measured& one) {
  const auto n = std::count_if(all.begin(), all.end(),
                               [&](const Measured* other) { return other->of.strategy == one.of.strategy; });
  return n == 1 ? one.of.strategy : one.of.name();
}

std::string slower_text(const Measured& one, const Measured& fastest, const std::string& name) {
  return is_as_fast(one, fastest) ? "as fast as " + name + ", within the spread"
                                  : percent(1 - one.speed() / fastest.speed()) + " slower than " + name;
}

std::string sentence_about(const std::vector<const Measured*>& all, const Measured& one) {
  const Measured& fastest = **std::max_element(
      all.begin(), all.end(), [](const Measured* a, const Measured* b) { return a->speed() < b->speed(); });
  const std::string name = name_among(all, one), slower = slower_text(one, fastest, name_among(all, fastest));
  const std::string memory = bytes_of_value(one.tags_of_rank);
  if (const Measured* better = better_than(all, one); better != nullptr) {
    const double faster = better->speed() / one.speed() - 1, less = 1 - better->tags_of_rank / one.tags_of_rank;
    return ddh::str(name, ": here ", name_among(all, *better), " is the better choice: ",
                    faster > noise_of(one, *better) ? percent(faster) + " faster" : "as fast, within the spread",
                    ", and ", less > kSameMemory ? percent(less) + " less memory" : "no more memory");
  }
  if (&one == &fastest)
    return ddh::str("use ", name, " when ", memory, " per rank fit: nothing measured here is faster");
  const double less = 1 - one.tags_of_rank / fastest.tags_of_rank;
  if (less > kSameMemory)
    return ddh::str("use ", name, " when ", bytes_of_value(fastest.tags_of_rank), " per rank do not fit: it takes ",
                    memory, ", ", percent(less), " less, and is ", slower);
  return ddh::str(name, ": no reason for it was measured: it takes ", memory, " per rank, and is ", slower);
}

// Nothing, or a warning that the machine was too busy.
std::string spread_warning(const std::vector<const Measured*>& all) {
  constexpr double kMuch = 0.1;
  double most = 0;
  for (const Measured* one : all) {
    most = std::max(most, one->spread());
    if (one->items_per_s.size() < 2)
      return "one round has no spread, so differences of speed may be chance; give more --budget or fewer --steps";
  }
  if (most <= kMuch) return "";
  return ddh::str("the rounds differ by up to ±", percent(most),
                  ": the machine did other work; compare again when it is idle, or give more --rounds");
}

// The cases of each group, in the order given.
std::vector<std::pair<std::string, std::vector<const Measured*>>> groups_of(const std::vector<Measured>& all) {
  std::vector<std::pair<std::string, std::vector<const Measured*>>> groups;
  for (const Measured& one : all) {
    auto at =
        std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == one.of.group(); });
    if (at == groups.end()) at = groups.insert(at, {one.of.group(), {}});
    at->second.push_back(&one);
  }
  return groups;
}

std::vector<std::string> speed_row(const Measured& base, const Measured& one) {
  const double fastness = one.speed() / base.speed();
  return {one.of.name(),
          short_number(one.speed()),
          one.items_per_s.size() > 1 ? "±" + percent(one.spread()) : "1 round",
          times(fastness),
          short_number(median(one.step_ms)),
          bytes_of_value(one.tags_of_rank),
          part_of(one.tags_of_rank, base.tags_of_rank),
          bytes_of_value(one.tags_of_all),
          part_of(one.tags_of_all, base.tags_of_all),
          bytes_of_value(one.pss),
          part_of(one.pss, base.pss),
          one.sent_per_step ? *one.sent_per_step > 0 ? bytes_of_value(*one.sent_per_step) : "0" : "-",
          one.losses.empty() ? "-" : short_number(one.losses.back()),
          values_text(base, one)};
}

ComparedGroup group_of(const std::string& title, const std::vector<const Measured*>& cases) {
  std::vector<const Measured*> there;
  for (const Measured* one : cases)
    if (one->is_there()) there.push_back(one);
  ComparedGroup out;
  out.title = title;
  if (!there.empty()) {
    const Measured& base = *there.front();
    if (title.empty()) out.title = base.model;
    out.title += ddh::str(" on ", counted(static_cast<uint64_t>(base.ranks), "rank"), ", ",
                          counted(base.items_per_s.size(), "round"), " of ", base.steps, " steps, ", base.left_out,
                          " of them as warm-up");
    out.speed.head = {"strategy", base.items + "/s", "spread", "speed",      "ms/step", "tags of a rank",
                      "%",        "tags of all",     "%",      "PSS of all", "%",       "sent/step",
                      "loss",     "values"};
    out.memory.head = {"peak of a rank"};
    for (const auto& [tag, bytes] : base.tags) out.memory.head.push_back(tag);
    for (const Measured* one : there) {
      out.speed.rows.push_back(speed_row(base, *one));
      std::vector<std::string> row = {one->of.name()};
      for (size_t i = 0; i < base.tags.size(); ++i)
        row.push_back(i < one->tags.size() ? bytes_text(static_cast<uint64_t>(one->tags[i].second)) : "-");
      out.memory.rows.push_back(std::move(row));
      if (there.size() > 1) out.advice.push_back(sentence_about(there, *one));
    }
  }
  if (const std::string warning = spread_warning(there); !warning.empty()) out.advice.push_back(warning);
  for (const Measured* one : cases)
    if (!one->is_there())
      out.advice.push_back(
          ddh::str(one->of.name(), ": not measured: ", one->problem.empty() ? "not yet run" : one->problem));
  return out;
}

std::string notes() {
  return "tags of a rank: the peaks of all memory tags, on the rank that has most; tags of all: of all ranks, with "
         "shared "
         "pages once; PSS of all: what the system counts for all processes at the end; sent/step: bytes that rank 0 "
         "sends";
}

}  // namespace

std::string ComparedCase::name() const {
  std::string out = strategy;
  for (const std::string& option : options) out += " " + option;
  return out;
}

double Measured::speed() const { return median(items_per_s); }

double Measured::spread() const {
  if (items_per_s.size() < 2 || speed() <= 0) return 0;
  const auto [low, high] = std::minmax_element(items_per_s.begin(), items_per_s.end());
  return (*high - *low) / 2 / speed();
}

bool is_as_fast(const Measured& one, const Measured& fastest) {
  return 1 - one.speed() / fastest.speed() <= noise_of(one, fastest);
}

void add_round(Measured& to, const std::filesystem::path& folder, int64_t warm_up) {
  double items = 0, ms = 0;
  int64_t counted_steps = 0, steps = 0;
  std::vector<std::pair<int64_t, uint64_t>> values;
  std::vector<double> losses;
  const MetricsEnd end = read_metrics(rows_file(folder), Rows::all, [&](const MetricsRow& row) {
    if (row.is_evaluation()) return true;
    const double *loss = row.find("loss"), *norm = row.find("grad_norm"), *took = row.find("step_ms");
    ++steps;
    const auto bits = [](const double* value) { return value == nullptr ? 0 : std::bit_cast<uint64_t>(*value); };
    values.emplace_back(row.step, bits(loss) ^ std::rotl(bits(norm), 17));
    losses.push_back(loss == nullptr ? 0 : *loss);
    for (const auto& [name, value] : row.values) {
      if (!name.ends_with("_per_s") || took == nullptr || steps <= warm_up) continue;
      to.items = name.substr(0, name.size() - 6);
      items += value * *took / 1e3;
      ms += *took;
      ++counted_steps;
    }
    return true;
  });
  if (!end.is_there || !end.summary.is_object() || counted_steps == 0)
    ddh::fail(DDH_FAILED_PRECONDITION, "'", folder.string(),
              "' has no rows of JSON with more steps than the warm-up and a summary; leave monitor.plugins out, or "
              "give more --steps");
  to.rounds_differ = to.rounds_differ || (!to.values.empty() && to.values != values);
  to.values = std::move(values);
  to.losses = std::move(losses);
  to.steps = steps;
  to.left_out = warm_up;
  const PastRun run = read_past_run(folder, Rows::few);
  to.model = run.plugin("model.plugin") + " " + run.option("model.size");
  to.ranks = static_cast<int64_t>(number_at(end.summary, "world_size"));
  to.items_per_s.push_back(items / ms * 1e3);
  to.step_ms.push_back(ms / static_cast<double>(counted_steps));
  add_summary(to, end.summary);
}

std::vector<ComparedGroup> compared(const std::vector<Measured>& all) {
  std::vector<ComparedGroup> out;
  for (const auto& [title, cases] : groups_of(all)) out.push_back(group_of(title, cases));
  return out;
}

std::string comparison_text(const std::vector<ComparedGroup>& groups, size_t width) {
  std::string out;
  for (const ComparedGroup& group : groups) {
    out += (out.empty() ? "" : "\n") + one_line(group.title) + "\n";
    if (!group.speed.rows.empty())
      out += as_text(group.speed, 60, width) + "\n" + as_text(group.memory, 60, width) + "\n";
    for (const std::string& line : group.advice)
      out += (width == SIZE_MAX ? shown_text(line) : wrapped(shown_text(line), width, 2)) + "\n";
  }
  return out + "\n" + (width == SIZE_MAX ? notes() : wrapped(notes(), width, 2)) + "\n";
}

std::string comparison_markdown(const std::vector<ComparedGroup>& groups) {
  std::string out;
  for (const ComparedGroup& group : groups) {
    out += "## " + escaped(group.title) + "\n\n";
    if (!group.speed.rows.empty()) out += as_markdown(group.speed) + "\n" + as_markdown(group.memory) + "\n";
    for (const std::string& line : group.advice) out += "- " + escaped(line, kShownSentence) + "\n";
    out += '\n';
  }
  return out + notes() + "\n";
}

std::string comparison_csv(const std::vector<Measured>& all) {
  Table table{{"model", "size", "strategy", "round", "items_per_s", "step_ms", "ranks", "steps", "tag_bytes_of_a_rank",
               "tag_bytes_of_all", "pss_bytes_of_all", "sent_bytes_per_step", "last_loss", "problem"},
              {},
              3};
  for (const Measured& one : all) {
    const size_t rounds = std::max<size_t>(one.items_per_s.size(), 1);
    for (size_t r = 0; r < rounds; ++r) {
      const bool is_there = r < one.items_per_s.size();
      table.rows.push_back({one.of.model, one.of.size, one.of.name(), std::to_string(r + 1),
                            is_there ? number_text(one.items_per_s[r]) : "",
                            is_there ? number_text(one.step_ms[r]) : "", std::to_string(one.ranks),
                            std::to_string(one.steps), number_text(one.tags_of_rank), number_text(one.tags_of_all),
                            number_text(one.pss), one.sent_per_step ? number_text(*one.sent_per_step) : "",
                            one.losses.empty() ? "" : number_text(one.losses.back()), one.problem});
    }
  }
  return as_csv(table);
}

Json comparison_json(const std::vector<Measured>& all) {
  Json out = Json::array();
  for (const Measured& one : all) {
    Json entry = {{"model", one.of.model}, {"size", one.of.size}, {"strategy", one.of.name()}};
    const auto base = std::find_if(all.begin(), all.end(), [&](const Measured& other) {
      return other.is_there() && other.of.group() == one.of.group();
    });
    if (!one.problem.empty()) entry["problem"] = one.problem;
    entry["items"] = one.items;
    entry["items_per_s"] = one.items_per_s;
    entry["step_ms"] = one.step_ms;
    entry["speed"] = one.speed();
    entry["spread"] = one.spread();
    entry["ranks"] = one.ranks;
    entry["steps"] = one.steps;
    for (const auto& [tag, bytes] : one.tags) entry["tag_bytes_of_a_rank"][tag] = bytes;
    entry["tag_bytes_of_all"] = one.tags_of_all;
    entry["pss_bytes_of_all"] = one.pss;
    entry["sent_bytes_per_step"] = one.sent_per_step ? Json(*one.sent_per_step) : Json();
    entry["losses"] = one.losses;
    if (one.is_there()) {
      entry["speed_of_base"] = one.speed() / base->speed();
      entry["same_bits"] = !one.rounds_differ && one.values == base->values;
    }
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace ddhost
