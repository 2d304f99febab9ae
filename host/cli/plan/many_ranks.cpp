// SPDX-License-Identifier: Apache-2.0
//
// cli/plan/many_ranks.cpp: many ranks take long to start, only to find that they do not fit. So a child of the loader plans
// their memory before.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/plan/memory_changes.hpp"
#include "ddh/sdk/memory/free_memory.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/loop/memory_fit.hpp"
#include "engine/record/process_memory.hpp"
#include "launch/kv.hpp"
#include "launch/progress.hpp"

namespace ddhost {
namespace {

// Two for each core, from 4 to 16.
int many_ranks() { return std::clamp(2 * static_cast<int>(std::thread::hardware_concurrency()), 4, 16); }

// What the ranks of a run would see if they were here. Ranks that were not planned count as the least of those that were, so no
// run is refused that fits: a strategy divides its state about evenly.
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
  std::vector<SeenMemory> all(static_cast<size_t>(run.world_size), seen);
  if (plan.ranks.size() == all.size())
    for (size_t rank = 0; rank < all.size(); ++rank) all[rank].planned = plan.ranks[rank];
  return all;
}

// What the ranks themselves find less, because they and their transport have taken memory by then. Measured with LibTorch are
// 16.1 MiB a process.
uint64_t taken_by_start(const PreparedRun& run, const std::vector<SeenMemory>& ranks) {
  constexpr uint64_t kProcessBytes = uint64_t{17} << 20;
  uint64_t bytes = run.ranks_are_threads ? 0 : ranks.size() * kProcessBytes;
  for (const SeenMemory& rank : ranks) bytes += rank.planned.comm;
  return bytes;
}

// {"sentence", "left", "ranks", "changes"}, or "": the run fits, or its ranks must find out.
std::string refusal(const AskedRun& asked, const PreparedRun& run, LoaderRecord& record, RunPlanner& planner) {
  const MemoryPlan plan = planner.plan(run, kMostCheckedRanks);
  if (plan.device_has_memory) return "";  // each rank knows its own device
  const std::vector<SeenMemory> ranks = ranks_of(run, plan);
  const std::optional<DoesNotFit> found =
      first_shortage(ranks, {run.device.id(), false, run.ranks_are_threads, plan.checkpoints});
  if (!found) return "";
  Shortage of_ranks = found->shortage;
  of_ranks.bytes_left -= std::min(of_ranks.bytes_left, taken_by_start(run, ranks));
  try {
    of_ranks.changes = sought_changes(asked, of_ranks, record, planner);
  } catch (const std::exception&) {  // the launcher seeks them, and says what fails
  }
  return Json({{"sentence", found->sentence},
               {"left", of_ranks.bytes_left},
               {"ranks", of_ranks.n_ranks},
               {"changes", of_ranks.changes}})
      .dump();
}

}  // namespace

void require_fit_of_many_ranks(const AskedRun& asked, const PreparedRun& run) {
  const bool is_limited = ddh::free_addresses().bytes != UINT64_MAX;  // each rank knows what its own process has left
  if (run.work != Work::kTrain || run.world_size < many_ranks() || is_limited || asked.line.restarts > 0 ||
      run.config.get<bool>("run.allow_overcommit"))
    return;
  const std::optional<std::string> text =
      planned_in_child([&](LoaderRecord& record, RunPlanner& planner) { return refusal(asked, run, record, planner); });
  if (!text || text->empty()) return;  // what can't be planned, the ranks say themselves
  const Json found = Json::parse(*text);
  throw LacksMemory(found.at("sentence").get<std::string>(),
                    {MemoryKind::kHost, found.at("left").get<uint64_t>(), found.at("ranks").get<uint32_t>(),
                     found.at("changes").get<std::string>()});
}

}  // namespace ddhost
