// SPDX-License-Identifier: Apache-2.0
#include "report/run_diff.hpp"

#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace ddhost {
namespace {

bool is_time(std::string_view name) {
  return name == "step_ms" || name.ends_with("_per_s") || name.starts_with("device_");
}

// Which row it is: two runs write the same one.
struct RowKey {
  int64_t step;
  bool is_evaluation;
  std::string program;
  auto operator<=>(const RowKey&) const = default;
};
RowKey key_of(const MetricsRow& row) { return {row.step, row.is_evaluation(), row.program}; }

uint64_t bits_of(double value) { return std::isnan(value) ? ~uint64_t{0} : std::bit_cast<uint64_t>(value); }

// FNV-1a over names and values. A run of a million steps is compared in memory that grows by this number only.
uint64_t hash_of(const MetricsRow& row) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](uint64_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (const auto& [name, value] : row.values) {
    if (is_time(name)) continue;
    for (const char c : name) add(static_cast<unsigned char>(c));
    for (size_t i = 0; i < sizeof value; ++i) add(bits_of(value) >> 8 * i & 0xff);
  }
  return hash;
}

std::optional<MetricsRow> row_of(const PastRun& run, const RowKey& key) {
  std::optional<MetricsRow> out;
  read_metrics(rows_file(run.folder), Rows::all, [&](const MetricsRow& row) {
    if (key_of(row) == key) out = row;
    return !out;
  });
  return out;
}

Json different_values(const MetricsRow& a, const MetricsRow& b) {
  Json out = Json::array();
  const auto add = [&](const std::string& name) {
    const double *in_a = a.find(name), *in_b = b.find(name);
    if (in_a != nullptr && in_b != nullptr && bits_of(*in_a) == bits_of(*in_b)) return;
    Json one = {{"name", name}};
    if (in_a != nullptr) one["a"] = *in_a;
    if (in_b != nullptr) one["b"] = *in_b;
    out.push_back(std::move(one));
  };
  for (const auto& [name, value] : a.values)
    if (!is_time(name)) add(name);
  for (const auto& [name, value] : b.values)
    if (!is_time(name) && a.find(name) == nullptr) add(name);
  return out;
}

Json values_diff(const PastRun& a, const PastRun& b) {
  std::map<RowKey, uint64_t> rows;
  read_metrics(rows_file(a.folder), Rows::all, [&](const MetricsRow& row) {
    rows[key_of(row)] = hash_of(row);
    return true;
  });
  int64_t equal = 0, compared = 0, only_b = 0;
  std::optional<RowKey> first;
  read_metrics(rows_file(b.folder), Rows::all, [&](const MetricsRow& row) {
    const RowKey key = key_of(row);
    const auto at = rows.find(key);
    if (at == rows.end()) {
      ++only_b;
      return true;
    }
    ++compared;
    if (at->second == hash_of(row)) {
      ++equal;
    } else if (!first || key < *first) {
      first = key;
    }
    return true;
  });
  Json out = {{"compared", compared}, {"equal", equal}, {"first", nullptr}};
  out["only_a"] = static_cast<int64_t>(rows.size()) - compared;
  out["only_b"] = only_b;
  if (!first) return out;
  const std::optional<MetricsRow> in_a = row_of(a, *first), in_b = row_of(b, *first);
  out["first"] = {{"step", first->step}, {"program", first->program}, {"evaluation", first->is_evaluation}};
  out["first"]["values"] = in_a && in_b ? different_values(*in_a, *in_b) : Json::array();
  return out;
}

// The values of nested objects by dotted keys. Lists are values.
void flatten(const Json& json, const std::string& prefix, std::map<std::string, Json>& out) {
  for (const auto& [name, value] : json.items()) {
    const std::string key = prefix.empty() ? name : prefix + "." + name;
    if (value.is_object() && !value.empty())
      flatten(value, key, out);
    else
      out[key] = value;
  }
}

Json differences(const std::map<std::string, Json>& a, const std::map<std::string, Json>& b) {
  std::set<std::string> keys;
  for (const auto& [key, value] : a) keys.insert(key);
  for (const auto& [key, value] : b) keys.insert(key);
  Json out = Json::array();
  for (const std::string& key : keys) {
    const auto in_a = a.find(key), in_b = b.find(key);
    const bool is_in_both = in_a != a.end() && in_b != b.end();
    if (is_in_both && in_a->second == in_b->second) continue;
    Json one = {{"key", key}};
    if (in_a != a.end()) one["a"] = in_a->second;
    if (in_b != b.end()) one["b"] = in_b->second;
    out.push_back(std::move(one));
  }
  return out;
}

std::map<std::string, Json> options_of(const PastRun& run) {
  std::map<std::string, Json> out;
  flatten(run.config, "", out);
  for (const char* name : {"run.name", "run.dir", "train.save_final"}) out.erase(name);
  return out;
}

std::map<std::string, Json> machine_of(const PastRun& run) {
  std::map<std::string, Json> out;
  const Json start = run.start(), machine = start.value("machine", Json());
  if (machine.is_object()) flatten(machine, "", out);
  if (start.contains("version")) out["ddhost"] = start["version"];
  return out;
}

// "model gpt": its version and its file. A second one of a kind has a number.
std::map<std::string, Json> plugins_of(const PastRun& run) {
  std::map<std::string, Json> out;
  const Json plugins = run.start().value("plugins", Json());
  if (!plugins.is_array()) return out;
  for (const Json& one : plugins) {
    if (!one.is_object() || !one.contains("kind") || !one["kind"].is_string()) continue;
    const std::string kind = one["kind"].get<std::string>();
    std::string name = kind;
    for (int n = 2; out.contains(name); ++n) name = kind + " " + std::to_string(n);
    const auto word = [&](const char* field) {
      const Json value = one.value(field, Json());
      return value.is_string() ? value.get<std::string>() : shown(value);
    };
    out[name] = word("id") + " " + word("version");
  }
  return out;
}

}  // namespace

Json run_diff(const PastRun& a, const PastRun& b) {
  return {{"options", differences(options_of(a), options_of(b))},
          {"plugins", differences(plugins_of(a), plugins_of(b))},
          {"machine", differences(machine_of(a), machine_of(b))},
          {"values", values_diff(a, b)}};
}

}  // namespace ddhost
