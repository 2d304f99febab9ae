// SPDX-License-Identifier: Apache-2.0
#include "engine/record/progress_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

#include "base/terminal.hpp"
#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

// How much a line says of each value.
enum class Detail { kAll, kWords, kShort, kShortest };

// "950", "12.3k", "4.5M"
std::string short_count(double value) {
  if (!(value >= 1e4)) return number_as(value >= 100 ? "%.0f" : "%.3g", value);
  return value < 1e6 ? number_as("%.1fk", value / 1e3) : number_as("%.1fM", value / 1e6);
}

std::string short_bytes(uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  return value < 1e6   ? number_as("%.0fKB", value / 1e3)
         : value < 1e9 ? number_as("%.0fMB", value / 1e6)
                       : number_as("%.1fGB", value / 1e9);
}

std::string step_text(const ProgressFacts& facts, Detail detail) {
  return ddh::str(detail <= Detail::kWords ? "step " : "", facts.step, "/", facts.last_step);
}

std::string epoch_text(const EpochPlace& place, Detail detail) {
  if (place.epoch == 0) return "";
  const std::string of = place.epochs > 0 ? ddh::str("/", place.epochs) : "";
  const std::string part = detail == Detail::kShortest ? "" : ddh::str(" ", std::floor(100 * place.part), "%");
  return ddh::str(detail <= Detail::kWords ? "epoch " : "ep ", place.epoch, of, part);
}

std::string speed_text(const ProgressFacts& facts, Detail detail) {
  const bool is_long = detail <= Detail::kWords;
  const std::string count =
      is_long && facts.items_per_s >= 100 ? number_as("%.0f", facts.items_per_s) : short_count(facts.items_per_s);
  const std::string unit = detail == Detail::kShortest ? "" : ddh::str(" ", plain_text(facts.items_name, kShownValue));
  return count + unit + "/s";
}

std::string ms_text(double ms, Detail detail) {
  return number_as(ms < 100 ? "%.1f" : "%.0f", ms) + (detail <= Detail::kWords ? " ms" : "ms");
}

std::string memory_text(uint64_t bytes, Detail detail) {
  return detail <= Detail::kWords ? "memory " + bytes_text(bytes) : short_bytes(bytes);
}

std::string checkpoint_text(const std::optional<double>& seconds, Detail detail) {
  const bool is_long = detail <= Detail::kWords;
  if (!seconds) return is_long ? "no checkpoint" : "no ckpt";
  return is_long ? "checkpoint " + duration_text(*seconds) + " ago" : "ckpt " + duration_text(*seconds);
}

struct Part {
  std::string text;
  int rank;  // a higher one is left out first
};

std::vector<Part> parts_of(const ProgressFacts& facts, Detail detail) {
  std::vector<Part> parts = {{step_text(facts, detail), 0},
                             {epoch_text(facts.epoch, detail), 3},
                             {"loss " + number_as("%.4f", facts.values[0].value), 1}};
  if (detail == Detail::kAll) {
    parts.push_back({"lr " + number_as("%.3g", facts.lr), 9});
    parts.push_back({"norm " + number_as("%.3f", facts.grad_norm), 9});
  }
  parts.insert(parts.end(), {{speed_text(facts, detail), 4},
                             {ms_text(facts.step_ms, detail), 5},
                             {(detail <= Detail::kWords ? "left " : "-") + duration_text(facts.seconds_left), 2},
                             {memory_text(facts.memory_bytes, detail), 6},
                             {checkpoint_text(facts.checkpoint_seconds, detail), 7}});
  std::erase_if(parts, [](const Part& part) { return part.text.empty(); });
  return parts;
}

std::string joined(const std::vector<Part>& parts, Detail detail) {
  std::string line;
  for (const Part& part : parts) line += (line.empty() ? "" : detail <= Detail::kWords ? "  " : " ") + part.text;
  return shown_text(line);
}

// Appends the values behind the first that fit.
void add_further_values(std::string& line, std::span<const ReportedValue> values, size_t columns) {
  for (const ReportedValue& value : values.subspan(1)) {
    const std::string one = shown_text(ddh::str("  ", value.name, " ", number_as("%.4g", value.value)));
    if (columns_of(line) + columns_of(one) > columns) return;
    line += one;
  }
}

}  // namespace

std::string number_as(const char* format, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string duration_text(double seconds) {
  std::array<char, 48> text{};
  const long long s = std::isfinite(seconds) ? std::llround(std::clamp(seconds, 0.0, 1e12)) : 0;
  constexpr long long kMinute = 60, kHour = 3600, kDay = 86400;
  if (s >= 4 * kDay)
    std::snprintf(text.data(), text.size(), "%lldd%02lldh", s / kDay, s % kDay / kHour);
  else if (s >= kHour)
    std::snprintf(text.data(), text.size(), "%lldh%02lldm", s / kHour, s % kHour / kMinute);
  else
    std::snprintf(text.data(), text.size(), "%lldm%02llds", s / kMinute, s % kMinute);
  return text.data();
}

std::string progress_text(const ProgressFacts& facts, size_t columns) {
  for (const Detail detail : {Detail::kAll, Detail::kWords, Detail::kShort, Detail::kShortest}) {
    std::string line = joined(parts_of(facts, detail), detail);
    if (columns_of(line) > columns) continue;
    if (detail == Detail::kAll) add_further_values(line, facts.values, columns);
    return line;
  }
  std::vector<Part> parts = parts_of(facts, Detail::kShortest);
  while (parts.size() > 1 && columns_of(joined(parts, Detail::kShortest)) > columns)
    parts.erase(
        std::max_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.rank < b.rank; }));
  return cut_to_columns(joined(parts, Detail::kShortest), columns);
}

}  // namespace ddhost
