// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/durable.hpp"
#include "base/table.hpp"
#include "base/terminal.hpp"
#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/record/profile/step_profile.hpp"
#include "engine/record/progress_text.hpp"

namespace ddhost {
namespace {

constexpr size_t kMostOperations = 64;  // whose times are gathered
constexpr size_t kMostUnits = 40;       // that have a row

// An operation of one rank, exchanged as bytes.
struct SentOperation {
  std::array<char, 56> name{};
  double ms = 0;
};
using SentOperations = std::array<SentOperation, kMostOperations>;

std::string ms_text(double ms) { return number_as(ms < 10 ? "%.2f" : "%.1f", ms); }
std::string percent_text(double part, double all) { return number_as("%.1f", all > 0 ? 100 * part / all : 0); }
double most(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

nlohmann::ordered_json or_null(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

}  // namespace

void ProfileReport::Work::add(const Spent& spent, const std::optional<double>& of_a_call) {
  ms += spent.ms;
  calls += spent.calls;
  flops = flops && of_a_call ? std::optional(*flops + *of_a_call * static_cast<double>(spent.calls)) : std::nullopt;
}

std::optional<double> ProfileReport::UnitRow::flops() const {
  if (!forward.flops || !backward.flops || !recompute.flops) return std::nullopt;
  return *forward.flops + *backward.flops + *recompute.flops;
}

ProfileReport::UnitRow& ProfileReport::UnitRow::operator+=(const UnitRow& more) {
  const auto add = [](Work& to, const Work& from) {
    to.ms += from.ms;
    to.calls += from.calls;
    to.flops = to.flops && from.flops ? std::optional(*to.flops + *from.flops) : std::nullopt;
  };
  add(forward, more.forward);
  add(backward, more.backward);
  add(recompute, more.recompute);
  ms_of_ranks.resize(std::max(ms_of_ranks.size(), more.ms_of_ranks.size()));
  for (size_t r = 0; r < more.ms_of_ranks.size(); ++r) ms_of_ranks[r] += more.ms_of_ranks[r];
  return *this;
}

ProfileReport::ProfileReport(const StepProfile& profile, const ddh_model_desc& model, const Comm& comm,
                             const FlopsOf& flops_of)
    : steps_(profile.steps()),
      count_(profile.count()),
      ranks_(comm.world_size()),
      kinds_ms_(profile.kinds_ms()),
      parts_(profile, comm) {
  add_units(profile, model, flops_of);
  gather(profile, comm);
}

void ProfileReport::add_units(const StepProfile& profile, const ddh_model_desc& model, const FlopsOf& flops_of) {
  units_.resize(model.n_units);
  for (uint32_t u = 0; u < model.n_units; ++u) units_[u].name = model.units[u]->name;
  for (const auto& [cost, spent] : profile.units()) {
    const ddh_program_desc& program = *model.programs[cost.call.program];
    UnitRow& row = units_[static_cast<size_t>(program.units[cost.call.position])];
    const int32_t phase = cost.call.phase;
    Work& work = phase == DDH_PHASE_BACKWARD    ? row.backward
                 : phase == DDH_PHASE_RECOMPUTE ? row.recompute
                                                : row.forward;
    work.add(spent, flops_of(cost));
  }
}

void ProfileReport::gather(const StepProfile& profile, const Comm& comm) {
  const auto ranks = static_cast<size_t>(ranks_);
  std::vector<double> mine, all(units_.size() * ranks);
  for (const UnitRow& row : units_) mine.push_back(row.ms());
  comm.all_gather_bytes(mine.data(), all.data(), mine.size() * sizeof(double), "profile");
  for (size_t u = 0; u < units_.size(); ++u)
    for (size_t r = 0; r < ranks; ++r) units_[u].ms_of_ranks.push_back(all[r * units_.size() + u]);

  SentOperations sent{};
  for (size_t i = 0; const auto& [name, spent] : profile.operations()) {
    operations_.push_back({name, spent, {}});
    if (i == kMostOperations) continue;
    std::strncpy(sent[i].name.data(), name.c_str(), sent[i].name.size() - 1);
    sent[i++].ms = spent.ms;
  }
  std::vector<SentOperations> of_ranks(ranks);
  comm.all_gather_bytes(&sent, of_ranks.data(), sizeof sent, "profile");
  for (OperationRow& row : operations_)
    for (const SentOperations& one : of_ranks) {
      const auto at = std::find_if(one.begin(), one.end(),
                                   [&](const SentOperation& operation) { return row.name == operation.name.data(); });
      row.ms_of_ranks.push_back(at == one.end() ? 0 : at->ms);
    }
  std::stable_sort(operations_.begin(), operations_.end(),
                   [](const OperationRow& a, const OperationRow& b) { return a.spent.ms > b.spent.ms; });
}

double ProfileReport::total_ms() const { return std::accumulate(kinds_ms_.begin(), kinds_ms_.end(), 0.0); }

std::string ProfileReport::units_text(size_t columns) const {
  // Where there are many units, those that take least are one row.
  std::vector<double> times;
  for (const UnitRow& row : units_) times.push_back(row.ms());
  std::sort(times.rbegin(), times.rend());
  const double least_shown = times.size() > kMostUnits ? times[kMostUnits - 1] : 0;
  std::vector<UnitRow> shown;
  UnitRow others, all;
  size_t n_others = 0;
  for (const UnitRow& row : units_) {
    all += row;
    if (row.ms() >= least_shown && shown.size() < kMostUnits && row.ms() > 0) {
      shown.push_back(row);
    } else if (row.ms() > 0) {
      others += row;
      ++n_others;
    }
  }
  if (n_others > 0) shown.push_back(others);
  if (n_others > 0) shown.back().name = counted(n_others, "other unit");
  shown.push_back(all);
  shown.back().name = "all units";
  const bool recomputes = all.recompute.calls > 0, has_flops = all.flops().value_or(0) > 0;
  std::vector<std::string> header = {"unit", "forward", "backward"};
  if (recomputes) header.emplace_back("recompute");
  header.emplace_back("share %");
  if (ranks_ > 1) header.emplace_back("slowest");
  if (has_flops) header.insert(header.end(), {"GFLOP", "GFLOP/s"});
  FittedTable table(header);
  for (const UnitRow& row : shown) {
    std::vector<std::string> cells = {plain_text(row.name, kShownValue), ms_text(row.forward.ms),
                                      ms_text(row.backward.ms)};
    if (recomputes) cells.push_back(ms_text(row.recompute.ms));
    cells.push_back(percent_text(row.ms(), total_ms()));
    if (ranks_ > 1) cells.push_back(ms_text(most(row.ms_of_ranks)));
    if (has_flops) {
      const double flops = row.flops().value_or(0);
      cells.push_back(row.flops() ? number_as("%.3g", flops / 1e9) : "");
      cells.push_back(row.flops() && row.ms() > 0 ? number_as("%.3g", flops / row.ms() / 1e6) : "");
    }
    table.add(std::move(cells));
  }
  return table.text(columns);
}

std::string ProfileReport::operations_text(size_t columns) const {
  std::vector<std::string> header = {"operation", "calls", "bytes sent", "ms", "share %"};
  if (ranks_ > 1) header.emplace_back("slowest");
  FittedTable table(header);
  for (const OperationRow& row : operations_) {
    std::vector<std::string> cells = {plain_text(row.name, kShownValue), std::to_string(row.spent.calls),
                                      std::to_string(row.spent.bytes), ms_text(row.spent.ms),
                                      percent_text(row.spent.ms, total_ms())};
    if (ranks_ > 1) cells.push_back(ms_text(most(row.ms_of_ranks)));
    table.add(std::move(cells));
  }
  return table.text(columns);
}

std::string ProfileReport::text(size_t columns) const {
  std::string parts;
  for (size_t kind = 0; kind < kSpanKinds; ++kind) {
    if (kind == DDH_SPAN_FORWARD || kind == DDH_SPAN_BACKWARD) continue;
    parts +=
        ddh::str(parts.empty() ? "" : ", ", kSpanNames[kind], " ", percent_text(kinds_ms_[kind], total_ms()), " %");
  }
  return parts_.text(columns) +
         wrapped(ddh::str("profile of steps ", steps_.first, " to ", steps_.first + count_ - 1, ": ",
                          ms_text(total_ms()), " ms on rank 0; by unit of the model, ms",
                          ranks_ > 1 ? " (slowest: of the slowest rank)" : "", "\n"),
                 columns, 2) +
         units_text(columns) + wrapped("  the rest: " + parts + "\n", columns, 4) +
         wrapped("profile by operation between ranks, which the rest contains as comm\n", columns, 2) +
         operations_text(columns);
}

std::filesystem::path ProfileReport::write(const std::filesystem::path& run_dir) const {
  const std::filesystem::path path = run_dir / "profile.json";
  const std::string text = json() + "\n";
  const NewFile file(run_dir, path);
  file.data().write_at(0, text.data(), text.size());
  file.data().sync();
  return file.publish_beside(path);
}

std::string ProfileReport::json() const {
  nlohmann::ordered_json out = {{"first_step", steps_.first}, {"steps", count_}, {"ranks", ranks_}, {"ms", total_ms()}};
  for (size_t kind = 0; kind < kSpanKinds; ++kind) out["parts_ms"][kSpanNames[kind]] = kinds_ms_[kind];
  out["step"] = parts_.json();
  out["units"] = nlohmann::ordered_json::array();
  for (const UnitRow& row : units_) {
    nlohmann::ordered_json unit = {
        {"unit", row.name}, {"ms", row.ms()}, {"share", row.ms() / std::max(total_ms(), 1e-9)}};
    for (const auto& [name, work] : {std::pair{"forward", &row.forward}, std::pair{"backward", &row.backward},
                                     std::pair{"recompute", &row.recompute}})
      unit[name] = {{"calls", work->calls}, {"ms", work->ms}, {"flops", or_null(work->flops)}};
    unit["ms_of_ranks"] = row.ms_of_ranks;
    out["units"].push_back(std::move(unit));
  }
  out["operations"] = nlohmann::ordered_json::array();
  for (const OperationRow& row : operations_)
    out["operations"].push_back({{"operation", row.name},
                                 {"calls", row.spent.calls},
                                 {"bytes_sent", row.spent.bytes},
                                 {"ms", row.spent.ms},
                                 {"ms_of_ranks", row.ms_of_ranks}});
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace ddhost
