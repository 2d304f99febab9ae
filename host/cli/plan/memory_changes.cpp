// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/memory_changes.hpp"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/child_process.hpp"
#include "cli/run_hosts.hpp"
#include "config/run_length.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/loop/memory_fit.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

using Overrides = std::vector<Override>;

Overrides joined(Overrides all, const Overrides& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// What a plan takes of the memory for which a run was refused, with the reserve. The transport does not count: it had taken
// its memory before. A rank that was not planned counts as the largest of those that were.
uint64_t bytes_in(const MemoryPlan& plan, const Shortage& shortage) {
  std::vector<uint64_t> ranks;
  for (const RankMemory& rank : plan.ranks) {
    PlannedBytes bytes = rank.in(shortage.kind, plan.device_has_memory);
    bytes[kCommTag] = 0;
    ranks.push_back(sum(bytes) + reserve_of_rank(rank, shortage.kind, plan.device_has_memory));
  }
  std::sort(ranks.rbegin(), ranks.rend());
  ranks.insert(ranks.begin(), static_cast<size_t>(plan.world_size) - ranks.size(), ranks.front());
  ranks.resize(std::min<size_t>(ranks.size(), shortage.n_ranks));
  return std::accumulate(ranks.begin(), ranks.end(), uint64_t{0});
}

// Of all ranks, or of the largest of many.
uint64_t unique_bytes(const MemoryPlan& plan) { return plan.unique_of_all().value_or(plan.largest().unique()); }

// State is in pinned memory of the host, though the device has none of its own.
bool offloads_for_nothing(const MemoryPlan& plan) {
  const RankMemory& rank = plan.largest();
  return !plan.device_has_memory && rank.pinned > 0 && rank.file == 0;
}
bool offloads(const MemoryPlan& plan) { return plan.largest().pinned > 0 || plan.largest().file > 0; }

// Its file can be kept there without taking memory.
bool is_on_disk(fs::path folder) {
  std::error_code ec;
  while (!fs::exists(folder, ec) && folder.has_relative_path()) folder = folder.parent_path();
  struct statfs system {};
  return ::statfs(folder.c_str(), &system) == 0 && system.f_type != TMPFS_MAGIC && system.f_type != RAMFS_MAGIC;
}

// The options with which a strategy keeps the optimizer's state in a file (docs/options.md).
constexpr const char *kStatePlace = "strategy.offload_optimizer.device", *kFileFolder = "strategy.nvme_path";
bool can_use_file(const Plugin& strategy) {
  const Json schema = Json::parse(strategy.desc->config_schema == nullptr ? "{}" : strategy.desc->config_schema);
  return schema.contains("/properties/offload_optimizer/properties/device"_json_pointer) &&
         schema.contains("/properties/nvme_path"_json_pointer);
}

// Tries changes of a run, in a process that may load its plugins.
class Changes {
 public:
  // `planner` may have planned the run before.
  Changes(const AskedRun& run, const Shortage& shortage, LoaderRecord& record, RunPlanner& planner)
      : planner_(planner),
        line_(run.line),
        registry_(run.registry),
        place_(run.place),
        shortage_(shortage),
        record_(record) {
    const UserConfig user = user_config(line_, registry_, {});
    const Config host(user, run_sections(user), /*plugin_sections=*/false);
    accumulated_ = host.get<int64_t>("train.grad_accum_steps");
    micro_batch_ = host.get<int64_t>("data.micro_batch");
    if (host.get<int64_t>("train.recompute") == 0) recompute_ = {{"train.recompute", "1", ""}};
    // docs/numerics.md: then the bits are the same for every strategy and number of ranks.
    same_order_ =
        host.get<std::string>("train.reduce_order") == "rank_first" && host.get<int64_t>("train.reduce_block") <= 1;
    strategy_ = host.get<std::string>("strategy.plugin");
    given_folder_ = host.text("run.dir");
  }

  // The nearest that fit, at most kMost. Those with the same bits come first; among them, those that change one thing do, and
  // a state on a disk, which is slow, comes last.
  std::vector<MemoryChange> that_fit() {
    order_strategies();
    const std::vector<MemoryChange> strategies = by_strategy({}, kMost);
    take(strategies, 0, 1);
    try_change(recompute_, true);
    for (const Overrides& fewer : fewer_ranks())
      if (try_change(fewer, same_order_)) break;
    take(strategies, 1, strategies.size());
    if (found_.empty()) try_two();
    if (found_.size() < kMost) try_files({});
    if (found_.empty())
      for (const Overrides& more : pairs())
        if (try_files(more)) break;
    try_smaller_batches();
    std::stable_sort(found_.begin(), found_.end(),
                     [](const MemoryChange& a, const MemoryChange& b) { return a.same_bits && !b.same_bits; });
    return found_;
  }

 private:
  static constexpr size_t kMost = 3;

  struct Strategy {
    std::string id;
    uint64_t unique;  // bytes of all ranks
    uint64_t bytes;   // in the memory that does not suffice
    bool has_file;    // it can keep its state there
  };

  [[nodiscard]] Override accumulate(int64_t times) const {
    return {"train.grad_accum_steps", ddh::str(accumulated_ * times), ""};
  }

  // A run with a change and its plan; nullopt: it can't be planned.
  std::optional<MemoryPlan> plan_with(const Overrides& change, PreparedRun* prepared = nullptr) {
    try {
      const UserConfig user = user_config(line_, registry_, change);
      const auto ranks = std::find_if(change.begin(), change.end(), [](const Override& o) { return o.key == kRanks; });
      RunPlace place = place_;
      if (ranks != change.end())
        place = place_of(place, std::stoi(ranks->text), Config(user, run_sections(user), /*plugin_sections=*/false));
      PreparedRun run = prepare_run(user, registry_, place, Work::kTrain, &record_);
      std::optional<MemoryPlan> plan = planner_.plan(run, kMostCheckedRanks);
      if (prepared != nullptr) *prepared = std::move(run);
      return plan;
    } catch (const ddh::Error&) {
      return std::nullopt;  // such as a model that can't recompute
    }
  }
  [[nodiscard]] uint64_t needed(const MemoryPlan& plan) const { return bytes_in(plan, shortage_); }
  bool fits(const Overrides& change) {
    const std::optional<MemoryPlan> plan = plan_with(change);
    return plan && needed(*plan) <= shortage_.bytes_left;
  }

  bool try_change(const Overrides& change, bool same_bits) {
    if (change.empty() || found_.size() >= kMost || !fits(change)) return false;
    found_.push_back({change, same_bits});
    return true;
  }

  // The other strategies, the nearest first: those that take less than the one asked for come first, of them those that take
  // most. An offload comes last; one that saves nothing is left out.
  void order_strategies() {
    PreparedRun own_run;
    const std::optional<MemoryPlan> own = plan_with({}, &own_run);
    if (own) note_folder(own_run);
    const uint64_t mine = own ? unique_bytes(*own) : UINT64_MAX;
    std::vector<std::pair<bool, Strategy>> all;
    std::vector<std::string> last;  // the state of these is offloaded anyhow
    for (const std::string& id : all_strategies(registry_)) {
      const bool is_own = id == id_of(strategy_);
      PreparedRun run;
      const std::optional<MemoryPlan> plan = is_own ? own : plan_with(of_strategy(id), &run);
      if (!plan) continue;
      if (folder_of_files_.empty()) note_folder(run);
      const bool has_file = can_use_file(is_own ? own_run.strategy : run.strategy);
      if (is_own) {
        if (has_file) with_files_.push_back(id);
      } else if (!offloads_for_nothing(*plan)) {
        all.emplace_back(offloads(*plan), Strategy{id, unique_bytes(*plan), needed(*plan), has_file});
      } else if (has_file) {
        last.push_back(id);
      }
    }
    std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) {
      if (a.first != b.first) return b.first;
      const bool a_more = a.second.unique > mine, b_more = b.second.unique > mine;
      if (a_more != b_more) return b_more;
      if (a.second.unique != b.second.unique) return (a.second.unique > b.second.unique) != a_more;
      return a.second.bytes > b.second.bytes;
    });
    for (auto& [away, strategy] : all) {
      if (strategy.has_file) with_files_.push_back(strategy.id);
      strategies_.push_back(std::move(strategy));
    }
    if (!own && strategies_.empty() && last.empty())
      ddh::fail(DDH_FAILED_PRECONDITION,
                "the run can't be planned with any strategy; try `ddhost plan` with its options");
    with_files_.insert(with_files_.end(), last.begin(), last.end());
  }

  void note_folder(const PreparedRun& run) {
    folder_of_files_ = given_folder_.empty() ? run.run_dir.parent_path() : run.run_dir;
  }

  // The user's own strategy keeps its name, and its options.
  [[nodiscard]] Overrides of_strategy(const std::string& id) const {
    return id == id_of(strategy_) ? Overrides{} : Overrides{{"strategy.plugin", id, ""}};
  }

  // The nearest strategies with which the run fits, together with `more`.
  std::vector<MemoryChange> by_strategy(const Overrides& more, size_t most) {
    std::vector<MemoryChange> out;
    for (const Strategy& strategy : strategies_) {
      if (out.size() == most) break;
      const Overrides change = joined(of_strategy(strategy.id), more);
      if (more.empty() ? strategy.bytes <= shortage_.bytes_left : fits(change)) out.push_back({change, same_order_});
    }
    return out;
  }

  // Where ranks share the memory: each smaller number that divides theirs, the largest first. As many micro-batches are in a
  // step as before.
  [[nodiscard]] std::vector<Overrides> fewer_ranks() const {
    std::vector<Overrides> out;
    if (shortage_.n_ranks < 2) return out;
    for (int ranks = place_.world_size / 2; ranks > 0; --ranks)
      if (place_.world_size % ranks == 0)
        out.push_back({{kRanks, ddh::str(ranks), ""}, accumulate(place_.world_size / ranks)});
    return out;
  }

  // What goes together with a strategy.
  [[nodiscard]] std::vector<Overrides> pairs() const {
    std::vector<Overrides> out, fewer = fewer_ranks();
    if (!recompute_.empty()) out.push_back(recompute_);
    out.insert(out.end(), fewer.begin(), fewer.end());
    if (!recompute_.empty())
      for (const Overrides& ranks : fewer) out.push_back(joined(ranks, recompute_));
    return out;
  }

  // A strategy and something else. The one that takes least is tried first, because a search must be short.
  void try_two() {
    const auto least = std::min_element(strategies_.begin(), strategies_.end(),
                                        [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
    for (const Overrides& more : pairs()) {
      const bool of_own = more.size() > 2 && fits(more);
      if (of_own) found_.push_back({more, same_order_});
      if (!of_own && (least == strategies_.end() || !fits(joined(of_strategy(least->id), more)))) continue;
      take(by_strategy(more, kMost), 0, kMost);
      return;
    }
  }

  // The state of the optimizer in a file in the run's folder, or in that of all runs, which is there before.
  bool try_files(const Overrides& more) {
    if (folder_of_files_.empty() || !is_on_disk(folder_of_files_)) return false;
    for (const std::string& id : with_files_) {
      Overrides change = of_strategy(id);
      change.push_back({kStatePlace, "nvme", ""});
      change.push_back({kFileFolder, folder_of_files_.string(), ""});
      if (try_change(joined(change, more), same_order_)) return true;
    }
    return false;
  }

  void try_smaller_batches() {
    for (int64_t times = 2; micro_batch_ % times == 0 && micro_batch_ >= times; times *= 2)
      if (try_change({{"data.micro_batch", ddh::str(micro_batch_ / times), ""}, accumulate(times)}, false)) return;
  }

  void take(const std::vector<MemoryChange>& changes, size_t first, size_t last) {
    for (size_t i = first; i < std::min(last, changes.size()) && found_.size() < kMost; ++i)
      found_.push_back(changes[i]);
  }

  static constexpr const char* kRanks = "run.nproc";
  RunPlanner& planner_;
  const CommandLine& line_;
  Registry& registry_;
  const RunPlace& place_;
  const Shortage& shortage_;
  LoaderRecord& record_;
  int64_t accumulated_ = 1, micro_batch_ = 1;
  bool same_order_ = true;
  Overrides recompute_;  // empty: the run does it
  std::string strategy_, given_folder_;
  fs::path folder_of_files_;             // of a state on a disk; empty: nothing could be planned
  std::vector<Strategy> strategies_;     // but that of the run
  std::vector<std::string> with_files_;  // strategies that can keep their state in a file
  std::vector<MemoryChange> found_;
};

}  // namespace

std::string MemoryChange::text() const {
  std::string out;
  for (const Override& one : overrides) out += ddh::str(out.empty() ? "" : " ", one.key, "=", one.text);
  return out + (same_bits ? "" : " (with other bits)");
}

std::string sought_changes(const AskedRun& run, const Shortage& shortage, LoaderRecord& record, RunPlanner& planner) {
  Json found = Json::array();
  for (const MemoryChange& change : Changes(run, shortage, record, planner).that_fit()) {
    Json words = Json::array();
    for (const Override& one : change.overrides) words.push_back({one.key, one.text});
    found.push_back({{"words", words}, {"same_bits", change.same_bits}});
  }
  return found.dump();
}

std::optional<std::string> planned_in_child(const std::function<std::string(LoaderRecord&, RunPlanner&)>& say) {
  constexpr std::chrono::seconds kLimit{10};
  try {
    ChildProcess child("to plan the run", [&] {
      LoaderRecord record;
      RunPlanner planner;
      return say(record, planner);
    });
    return child.answer(ChildProcess::Clock::now() + kLimit);
  } catch (const ddh::Error&) {
    return std::nullopt;
  }
}

Shortage with_changes(const AskedRun& run, Shortage shortage) {
  const std::optional<std::string> changes = planned_in_child(
      [&](LoaderRecord& record, RunPlanner& planner) { return sought_changes(run, shortage, record, planner); });
  shortage.changes = changes.value_or("");
  return shortage;
}

TriedChanges changes_that_fit(const AskedRun& run, const Shortage& shortage) {
  TriedChanges out;
  std::string found = shortage.changes;
  if (found.empty())
    found = text_of_loader(out.end, [&](LoaderRecord& record) {
      RunPlanner planner;
      return sought_changes(run, shortage, record, planner);
    });
  if (out.end.exit_code != 0) return out;
  for (const Json& change : Json::parse(found)) {
    out.changes.push_back({{}, change.at("same_bits").get<bool>()});
    for (const Json& word : change.at("words"))
      out.changes.back().overrides.push_back({word.at(0).get<std::string>(), word.at(1).get<std::string>(), "--fit"});
  }
  return out;
}

}  // namespace ddhost
