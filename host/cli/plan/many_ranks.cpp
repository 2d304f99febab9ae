// SPDX-License-Identifier: Apache-2.0
//
// cli/plan/many_ranks.cpp: many ranks take long to start, only to find that they do not fit. So their plan is compared with
// the memory of this host before.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/plan/planned_run.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/loop/memory_fit.hpp"
#include "engine/record/process_memory.hpp"
#include "launch/kv.hpp"
#include "launch/progress.hpp"

namespace ddhost {
namespace {

constexpr int kManyRanks = 16;

// What the ranks of a run would see if they were here. Only the host's memory is compared: each rank compares the rest itself.
// All count as the least of those that were planned, so no run is refused that fits: a strategy divides its state about evenly.
std::vector<SeenMemory> ranks_of(const PreparedRun& run, const MemoryPlan& plan) {
  KvLocal kv;
  Progress progress(1);
  ProgressOfRank record(progress, 0);
  SeenMemory seen{};
  seen.addresses_left = UINT64_MAX;
  see_host(seen, RankSeat{0, std::make_shared<Nodes>(run.world_size, run.ranks_per_node), kv, record, 0});
  if (seen.host_left != UINT64_MAX) seen.host_left += process_memory().pss_bytes;  // this process ends
  seen.planned = *std::min_element(plan.ranks.begin(), plan.ranks.end(),
                                   [](const auto& a, const auto& b) { return a.unique() < b.unique(); });
  return std::vector<SeenMemory>(static_cast<size_t>(run.world_size), seen);
}

}  // namespace

std::optional<Outcome> shortage_of_many_ranks(const CommandLine& line, Registry& registry, const RunPlace& place) {
  if (place.world_size < kManyRanks || line.command != Command::kTrain || line.dry_run) return std::nullopt;
  Outcome end;
  const std::string text = text_of_loader(end, [&](LoaderRecord& of_loader) -> std::string {
    const PreparedRun run = prepare_run(user_config(line, registry, {}), registry, place, Work::kTrain, &of_loader);
    if (run.config.get<bool>("run.allow_overcommit")) return "";
    const MemoryPlan plan = RunPlanner().plan(run, kMostCheckedRanks);
    if (plan.device_has_memory) return "";
    const FitQuestion question{run.device.id(), false, run.ranks_are_threads, plan.checkpoints};
    const std::optional<DoesNotFit> found = first_shortage(ranks_of(run, plan), question);
    if (!found) return "";
    return Json({found->sentence, found->shortage.bytes_left, found->shortage.n_ranks}).dump();
  });
  if (end.exit_code > 1) return end;  // a signal
  // What can't be planned, the run says itself.
  if (end.exit_code != 0 || text.empty()) return std::nullopt;
  const Json found = Json::parse(text);
  return Outcome{1, found.at(0).get<std::string>(),
                 Shortage{MemoryKind::kHost, found.at(1).get<uint64_t>(), found.at(2).get<uint32_t>()}};
}

}  // namespace ddhost
