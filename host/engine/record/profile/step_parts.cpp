// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "base/table.hpp"
#include "base/terminal.hpp"
#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/record/profile/step_profile.hpp"
#include "engine/record/progress_text.hpp"

namespace ddhost {
namespace {

constexpr size_t kMostPeers = 8;  // that have a row of their own

// Microseconds of a first touch of a page, without that of a second touch: the fastest of some rounds.
double us_of_page_fault() {
  constexpr size_t kPages = 512, kPageBytes = 4096;
  constexpr int kRounds = 5;
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    void* const p = ::mmap(nullptr, kPages * kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return 0;
    static_cast<void>(::madvise(p, kPages * kPageBytes, MADV_NOHUGEPAGE));
    const auto touch = [p] {
      const auto from = std::chrono::steady_clock::now();
      for (size_t page = 0; page < kPages; ++page) static_cast<volatile char*>(p)[page * kPageBytes] = 1;
      return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - from).count();
    };
    const double first = touch(), second = touch();
    best = std::min(best, std::max(0.0, first - second) / kPages);
    ::munmap(p, kPages * kPageBytes);
  }
  return best;
}

// What every rank has, in the order of the ranks. [collective]
std::vector<nlohmann::json> of_all_ranks(const nlohmann::json& mine, const Comm& comm) {
  const std::string text = mine.dump();
  const auto ranks = static_cast<size_t>(comm.world_size());
  const uint64_t bytes = text.size();
  std::vector<uint64_t> sizes(ranks);
  comm.all_gather_bytes(&bytes, sizes.data(), sizeof bytes, "profile");
  const uint64_t most = *std::max_element(sizes.begin(), sizes.end());
  std::string padded = text;
  padded.resize(most, ' ');
  std::string all(most * ranks, ' ');
  comm.all_gather_bytes(padded.data(), all.data(), most, "profile");
  std::vector<nlohmann::json> out;
  for (size_t r = 0; r < ranks; ++r) out.push_back(nlohmann::json::parse(std::string_view(all).substr(r * most, most)));
  return out;
}

}  // namespace

std::map<int32_t, double> StepParts::waits_in_collectives(const StepProfile& profile, const Comm& comm,
                                                          OfParts<double>& parts_ms) {
  nlohmann::json mine = nlohmann::json::object();
  for (const auto& [name, collective] : profile.collectives()) mine[name] = collective.calls_ms;
  const std::vector<nlohmann::json> all = of_all_ranks(mine, comm);
  std::map<int32_t, double> waits;
  for (const auto& [name, collective] : profile.collectives()) {
    std::vector<std::pair<int32_t, std::vector<double>>> of_members;
    for (size_t r = 0; r < all.size(); ++r)
      if (all[r].contains(name)) of_members.emplace_back(r, all[r][name].get<std::vector<double>>());
    for (size_t call = 0; call < collective.calls_ms.size(); ++call) {
      int32_t last = comm.rank();
      double shortest = collective.calls_ms[call];
      for (const auto& [rank, calls_ms] : of_members)
        if (call < calls_ms.size() && calls_ms[call] < shortest) {
          shortest = calls_ms[call];
          last = rank;
        }
      const double waited = collective.calls_ms[call] - shortest;
      if (last == comm.rank()) continue;
      waits[last] += waited;
      parts_ms[collective.part] -= waited;
      parts_ms[StepPart::wait] += waited;
    }
  }
  return waits;
}

StepParts::StepParts(const StepProfile& profile, const Comm& comm)
    : count_(profile.count()), rank_(static_cast<size_t>(comm.rank())) {
  OfParts<double> parts_ms = profile.parts_ms();
  std::map<int32_t, double> waits = waits_in_collectives(profile, comm, parts_ms);
  for (const auto& [rank, ms] : profile.waited_ms()) waits[rank] += ms;
  us_of_fault_ = us_of_page_fault();
  for (size_t p = 0; p < kParts; ++p) {
    const auto part = static_cast<StepPart>(p);
    faults_ += profile.faults()[part];
    if (part == StepPart::memory) continue;
    const double taken =
        std::min(std::max(parts_ms[part], 0.0), static_cast<double>(profile.faults()[part]) * us_of_fault_ / 1e3);
    parts_ms[part] -= taken;
    parts_ms[StepPart::memory] += taken;
    if (part == StepPart::wait && parts_ms[part] + taken > 0)
      for (auto& [rank, ms] : waits) ms *= parts_ms[part] / (parts_ms[part] + taken);
  }
  const double known_waits =
      std::accumulate(waits.begin(), waits.end(), 0.0, [](double sum, const auto& one) { return sum + one.second; });

  nlohmann::json mine = nlohmann::json::array();
  for (const double ms : parts_ms) mine.push_back(ms);
  mine[static_cast<size_t>(StepPart::wait)] = parts_ms[StepPart::wait] - known_waits;
  nlohmann::json peers = nlohmann::json::array();
  for (int32_t peer = 0; peer < comm.world_size(); ++peer) peers.push_back(waits.contains(peer) ? waits.at(peer) : 0.0);
  const std::vector<nlohmann::json> all = of_all_ranks({{"parts", mine}, {"peers", peers}}, comm);
  for (size_t p = 0; p < kParts; ++p) {
    if (static_cast<StepPart>(p) == StepPart::wait)
      for (int32_t peer = 0; peer < comm.world_size(); ++peer) {
        Row row{ddh::str("waiting for rank ", peer), peer, {}};
        for (const nlohmann::json& one : all) row.ms_of_ranks.push_back(one["peers"][static_cast<size_t>(peer)]);
        rows_.push_back(std::move(row));
      }
    Row row{kPartNames[p], -1, {}};
    if (static_cast<StepPart>(p) == StepPart::wait) row.name = "waiting, for one that is not known";
    for (const nlohmann::json& one : all) row.ms_of_ranks.push_back(one["parts"][p]);
    rows_.push_back(std::move(row));
  }
}

double StepParts::total_of(size_t rank) const {
  return std::accumulate(rows_.begin(), rows_.end(), 0.0,
                         [rank](double sum, const Row& row) { return sum + row.ms_of_ranks[rank]; });
}

double StepParts::ms(const Row& row) const { return row.ms_of_ranks[rank_] / static_cast<double>(count_); }

std::string StepParts::text(size_t columns) const {
  if (count_ == 0) return "";
  const auto number = [](double value) { return number_as(value < 10 ? "%.2f" : "%.1f", value); };
  const double total = total_of(rank_) / static_cast<double>(count_);
  const size_t ranks = rows_.front().ms_of_ranks.size();
  std::vector<std::string> header = {"part of a step", "ms", "share %"};
  if (ranks > 1) header.insert(header.end(), {"least", "most"});
  FittedTable table(header);
  const auto add = [&](const std::string& name, double mine, std::vector<double> of_ranks) {
    std::vector<std::string> cells = {name, number(mine), number_as("%.1f", total > 0 ? 100 * mine / total : 0)};
    for (double& one : of_ranks) one /= static_cast<double>(count_);
    if (ranks > 1) cells.push_back(number(*std::min_element(of_ranks.begin(), of_ranks.end())));
    if (ranks > 1) cells.push_back(number(*std::max_element(of_ranks.begin(), of_ranks.end())));
    table.add(std::move(cells));
  };
  // Where there are many ranks, waits for those that are waited for least are one row.
  std::vector<double> waits;
  for (const Row& row : rows_)
    if (row.peer >= 0) waits.push_back(row.ms_of_ranks[rank_]);
  std::sort(waits.rbegin(), waits.rend());
  const double least_shown = waits.size() > kMostPeers ? waits[kMostPeers - 1] : -1;
  Row others{"waiting for other ranks", 0, std::vector<double>(ranks)};
  for (const Row& row : rows_) {
    const bool is_zero = std::all_of(row.ms_of_ranks.begin(), row.ms_of_ranks.end(), [](double ms) { return ms == 0; });
    if (is_zero && row.name != kPartNames[static_cast<size_t>(StepPart::host)]) continue;
    if (row.peer < 0 || row.ms_of_ranks[rank_] > least_shown)
      add(row.name, ms(row), row.ms_of_ranks);
    else
      for (size_t r = 0; r < ranks; ++r) others.ms_of_ranks[r] += row.ms_of_ranks[r];
  }
  if (others.ms_of_ranks != std::vector<double>(ranks)) add(others.name, ms(others), others.ms_of_ranks);
  std::vector<double> totals;
  for (size_t r = 0; r < ranks; ++r) totals.push_back(total_of(r));
  add("all", total, totals);
  return wrapped(ddh::str("where a step of rank 0 goes", ranks > 1 ? " (least, most: of all ranks)" : "",
                          "; its host's own share is the remainder\n"),
                 columns, 2) +
         table.text(columns) +
         wrapped(ddh::str("  memory: what plugins allocate and free, and ", counted(faults_, "page fault"),
                          " in these steps at ", number_as("%.2f", us_of_fault_), " us each, which is measured\n"),
                 columns, 4);
}

nlohmann::ordered_json StepParts::json() const {
  nlohmann::ordered_json out = {{"ms", total_of(rank_)}, {"page_faults", faults_}, {"us_of_page_fault", us_of_fault_}};
  out["parts"] = nlohmann::ordered_json::array();
  for (const Row& row : rows_) {
    nlohmann::ordered_json part = {{"part", row.peer < 0 ? row.name : "waiting"}};
    if (row.peer >= 0) part["for_rank"] = row.peer;
    part["ms"] = row.ms_of_ranks[rank_];
    part["share"] = row.ms_of_ranks[rank_] / std::max(total_of(rank_), 1e-9);
    part["ms_of_ranks"] = row.ms_of_ranks;
    out["parts"].push_back(std::move(part));
  }
  return out;
}

}  // namespace ddhost
