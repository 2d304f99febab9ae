// SPDX-License-Identifier: Apache-2.0
//
// cli/memory_changes.cpp: changes of a training that does not fit into memory, with which it does (--fit, and the end of the
// error). They are planned, as by `ddhost plan`; no rank is started.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/planned_run.hpp"
#include "cli/run_hosts.hpp"
#include "config/run_length.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

// What a plan takes of the memory for which a run was refused, with the reserve. The transport does not count: it had taken its
// memory before.
uint64_t bytes_in(const MemoryPlan& plan, const Shortage& shortage) {
  std::vector<uint64_t> ranks;
  for (const RankMemory& rank : plan.ranks) {
    PlannedBytes bytes = rank.in(shortage.kind, plan.device_has_memory);
    bytes[kCommTag] = 0;
    ranks.push_back(sum(bytes) + reserve_of_rank(shortage.kind));
  }
  std::sort(ranks.rbegin(), ranks.rend());
  ranks.resize(std::min<size_t>(ranks.size(), shortage.n_ranks));
  return std::accumulate(ranks.begin(), ranks.end(), uint64_t{0});
}

// Tries changes of a run, in the loader.
class Changes {
 public:
  Changes(const CommandLine& line, Registry& registry, const RunPlace& place, const Shortage& shortage,
          LoaderRecord& record)
      : line_(line), registry_(registry), place_(place), shortage_(shortage), record_(record) {
    const UserConfig user = user_config(line, registry, {});
    const Config host(user, run_sections(user), /*plugin_sections=*/false);
    accumulated_ = host.get<int64_t>("train.grad_accum_steps");
    micro_batch_ = host.get<int64_t>("data.micro_batch");
    recomputes_ = host.get<int64_t>("train.recompute") > 0;
    // docs/numerics.md: then the bits are the same for every strategy and number of ranks.
    same_order_ =
        host.get<std::string>("train.reduce_order") == "rank_first" && host.get<int64_t>("train.reduce_block") <= 1;
    strategy_ = host.get<std::string>("strategy.plugin");
  }

  // The nearest that fit, at most kMost. Those with the same bits come first.
  std::vector<MemoryChange> that_fit() {
    std::vector<MemoryChange> strategies = by_strategy({});
    take(strategies, 0, 1);
    if (!recomputes_) try_change({{"train.recompute", "1", ""}}, place_.world_size, true);
    if (place_.world_size % 2 == 0)
      try_change({{"run.nproc", ddh::str(place_.world_size / 2), ""}, accumulate()}, place_.world_size / 2,
                 same_order_);
    take(strategies, 1, strategies.size());
    if (found_.empty() && !recomputes_) {
      strategies = by_strategy({{"train.recompute", "1", ""}});
      take(strategies, 0, strategies.size());
    }
    if (micro_batch_ % 2 == 0)
      try_change({{"data.micro_batch", ddh::str(micro_batch_ / 2), ""}, accumulate()}, place_.world_size, false);
    std::stable_sort(found_.begin(), found_.end(),
                     [](const MemoryChange& a, const MemoryChange& b) { return a.same_bits && !b.same_bits; });
    return found_;
  }

 private:
  static constexpr size_t kMost = 3;

  [[nodiscard]] Override accumulate() const { return {"train.grad_accum_steps", ddh::str(accumulated_ * 2), ""}; }
  // The plan of a change; nullopt: it can't be planned, or does not fit.
  std::optional<MemoryPlan> plan_with(const std::vector<Override>& change, int world_size) {
    try {
      const UserConfig user = user_config(line_, registry_, change);
      RunPlace place = place_;
      if (world_size != place.world_size)
        place = place_of(place, world_size, Config(user, run_sections(user), /*plugin_sections=*/false));
      const PreparedRun run = prepare_run(user, registry_, place, Work::kTrain, &record_);
      MemoryPlan plan = plan_of(run);
      return bytes_in(plan, shortage_) <= shortage_.bytes_left ? std::optional(std::move(plan)) : std::nullopt;
    } catch (const ddh::Error&) {
      return std::nullopt;  // such as a model that can't recompute
    }
  }
  void try_change(const std::vector<Override>& change, int world_size, bool same_bits) {
    if (found_.size() < kMost && plan_with(change, world_size)) found_.push_back({change, same_bits});
  }
  // The other strategies, with `more`, that fit: those that take most come first.
  std::vector<MemoryChange> by_strategy(const std::vector<Override>& more) {
    std::vector<std::pair<uint64_t, MemoryChange>> fitting;
    for (const std::string& id : all_strategies(registry_)) {
      if (id == id_of(strategy_)) continue;
      std::vector<Override> change = {{"strategy.plugin", id, ""}};
      change.insert(change.end(), more.begin(), more.end());
      if (const std::optional<MemoryPlan> plan = plan_with(change, place_.world_size))
        fitting.push_back({bytes_in(*plan, shortage_), {change, same_order_}});
    }
    std::stable_sort(fitting.begin(), fitting.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<MemoryChange> out;
    for (auto& [bytes, change] : fitting) out.push_back(std::move(change));
    return out;
  }
  void take(const std::vector<MemoryChange>& changes, size_t first, size_t last) {
    for (size_t i = first; i < std::min(last, changes.size()) && found_.size() < kMost; ++i)
      found_.push_back(changes[i]);
  }

  const CommandLine& line_;
  Registry& registry_;
  const RunPlace& place_;
  const Shortage& shortage_;
  LoaderRecord& record_;
  int64_t accumulated_ = 1, micro_batch_ = 1;
  bool recomputes_ = false, same_order_ = true;
  std::string strategy_;
  std::vector<MemoryChange> found_;
};

}  // namespace

std::string MemoryChange::text() const {
  std::string out;
  for (const Override& one : overrides) out += ddh::str(out.empty() ? "" : " ", one.key, "=", one.text);
  return out + (same_bits ? "" : " (with other bits)");
}

TriedChanges changes_that_fit(const CommandLine& line, Registry& registry, const RunPlace& place,
                              const Shortage& shortage) {
  TriedChanges out;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    out.end = {1, ddh::str("can't make a pipe: ", std::strerror(errno)), std::nullopt};
    return out;
  }
  Fd read_end(ends[0]), write_end(ends[1]);
  LoaderRecord record;
  out.end = launch(
      LaunchArgs{},
      [&](LoaderRecord& of_loader) -> Prepared {
        Json found = Json::array();
        for (const MemoryChange& change : Changes(line, registry, place, shortage, of_loader).that_fit()) {
          Json words = Json::array();
          for (const Override& one : change.overrides) words.push_back({one.key, one.text});
          found.push_back({{"words", words}, {"same_bits", change.same_bits}});
        }
        const std::string text = found.dump();
        if (::write(write_end.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
          ddh::fail(DDH_INTERNAL, "can't write to a pipe: ", std::strerror(errno));
        return {};
      },
      record);
  write_end = Fd();
  if (out.end.exit_code != 0) return out;
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t n = 0; (n = ::read(read_end.get(), part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<size_t>(n));
  for (const Json& change : Json::parse(text)) {
    out.changes.push_back({{}, change.at("same_bits").get<bool>()});
    for (const Json& word : change.at("words"))
      out.changes.back().overrides.push_back({word.at(0).get<std::string>(), word.at(1).get<std::string>(), "--fit"});
  }
  return out;
}

}  // namespace ddhost
