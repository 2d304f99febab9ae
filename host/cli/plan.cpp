// SPDX-License-Identifier: Apache-2.0
//
// cli/plan.cpp: `ddhost plan`. Everything happens in the loader, as for a run; no rank is started.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <ostream>

#include "base/terminal.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/run_hosts.hpp"
#include "cli/user_files.hpp"
#include "config/replaced.hpp"
#include "config/run_length.hpp"
#include "ddh/sdk/plugin.hpp"
#include "draw/table.hpp"
#include "engine/loop/memory_plan.hpp"
#include "launch/kv.hpp"
#include "launch/launch.hpp"
#include "plan/prepare.hpp"

namespace ddhost {
namespace {

// The plan of a strategy and a size of the model, or why there is none.
struct Planned {
  std::string strategy;
  std::string size;  // empty: the user's
  std::optional<MemoryPlan> plan;
  std::string problem;
};

std::string megabytes(uint64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", static_cast<double>(bytes) / 1e6);
  return text.data();
}

// What a rank takes of the memory that --memory means: that of its device, if the device has its own.
PlannedBytes bytes_to_fit(const MemoryPlan& plan, const RankMemory& rank) {
  return rank.in(plan.device_has_memory ? MemoryKind::kDevice : MemoryKind::kAddresses, plan.device_has_memory);
}

// "yes", or the first tag that does not fit: "no: optim".
std::string fit_text(const PlannedBytes& bytes, uint64_t memory) {
  const char* const tag = first_that_does_not_fit(bytes, memory);
  return tag == nullptr ? "yes" : ddh::str("no: ", tag);
}

void append_row(std::string& out, const std::vector<std::string>& cells) {
  for (size_t i = 0; i < cells.size(); ++i) {
    const size_t width = i == 0 ? 14 : 11;
    std::string cell = cells[i];
    if (cell.size() < width) cell.insert(i == 0 ? cell.size() : 0, width - cell.size(), ' ');
    out += (i == 0 ? "" : " ") + cell;
  }
  out.erase(out.find_last_not_of(' ') + 1);
  out += '\n';
}

std::string title(const MemoryPlan& plan, bool has_sizes) {
  return ddh::str(
      has_sizes ? "sizes of the model on " : ddh::str(plan.model, ": ", plan.n_params, " parameters on "),
      counted(plan.world_size, "rank"),
      "; MB of the largest rank, of all ranks with shared pages counted once, and sent by the largest in a step",
      plan.has_nodes ? " (in all, and to other nodes)\n" : "\n");
}

// `columns`: of the terminal; SIZE_MAX: there is none.
std::string table(const std::vector<Planned>& all, std::optional<uint64_t> memory, size_t columns) {
  const bool has_sizes = !all.empty() && !all.front().size.empty();
  std::string out;
  Table shown;
  for (const Planned& one : all) {
    if (!one.plan) continue;
    const MemoryPlan& plan = *one.plan;
    std::vector<std::string> head = {"strategy"}, row = {plan.strategy};
    const auto add = [&](const char* name, std::string value) {
      head.emplace_back(name);
      row.push_back(std::move(value));
    };
    if (has_sizes) {
      add("size", one.size);
      add("parameters", ddh::str(plan.n_params));
    }
    const RankMemory& rank = plan.largest();
    const PlannedBytes bytes = rank.in(MemoryKind::kAddresses, plan.device_has_memory);
    const auto is_known = [&](size_t tag) {
      return tag == kCommTag ? plan.knows_comm : tag != kActTag || plan.knows_act;
    };
    for (size_t tag = 0; tag < bytes.size(); ++tag) add(kPlannedTags[tag], is_known(tag) ? megabytes(bytes[tag]) : "-");
    add("total", megabytes(rank.total()));
    if (plan.device_has_memory) add("host", megabytes(sum(rank.in(MemoryKind::kHost, true))));
    const std::optional<uint64_t> unique = plan.unique_of_all();
    add("all ranks", unique ? megabytes(*unique) : "-");
    add("sent", rank.sent ? megabytes(*rank.sent) : "-");
    if (plan.has_nodes) add("to nodes", rank.sent_between_nodes ? megabytes(*rank.sent_between_nodes) : "-");
    if (memory) add("fits", fit_text(bytes_to_fit(plan, rank), *memory));
    if (shown.head.empty()) {
      out = title(plan, has_sizes);
      if (columns != SIZE_MAX) out = wrapped(out.substr(0, out.size() - 1), columns, 2) + "\n";
      shown.head = head;
    }
    shown.rows.push_back(row);
  }
  if (columns != SIZE_MAX) return out + as_text(shown, 60, columns);
  if (!shown.head.empty()) append_row(out, shown.head);
  for (const std::vector<std::string>& row : shown.rows) append_row(out, row);
  return out;
}

// What the numbers leave out.
std::string notes(const std::vector<Planned>& all) {
  std::string out;
  for (const Planned& one : all)
    if (!one.plan)
      out += ddh::str(one.strategy, one.strategy.empty() || one.size.empty() ? "" : " at ", one.size,
                      ": not planned: ", one.problem, "\n");
  const auto any = [&](auto&& holds) {
    return std::any_of(all.begin(), all.end(), [&](const Planned& one) { return one.plan && holds(*one.plan); });
  };
  if (any([](const MemoryPlan& plan) { return !plan.knows_comm; }))
    out += "comm: the transport does not say what it takes\n";
  if (any([](const MemoryPlan& plan) { return !plan.knows_act; })) out += "act: the model has no estimate\n";
  if (any([](const MemoryPlan& plan) { return !plan.largest().sent; }))
    out += "sent: the strategy does not say what it sends\n";
  uint64_t checkpoints = 0;
  for (const Planned& one : all) checkpoints = std::max(checkpoints, one.plan ? one.plan->memory_checkpoints : 0);
  const bool has_hosts = any([](const MemoryPlan& plan) { return plan.has_hosts; });
  if (checkpoints > 0)
    out += ddh::str("checkpoint.memory_every takes ", has_hosts ? "at most " : "", megabytes(checkpoints),
                    " MB more of ", has_hosts ? "each" : "the", " host\n");
  if (any([](const MemoryPlan& plan) { return !plan.unique_of_all(); }))
    out += ddh::str("of more than ", kMostPlannedRanks, " ranks the first and the last are planned\n");
  return out + "not counted: evaluations, data sets, and the libraries of a process\n";
}

std::string text_of(const std::vector<Planned>& all, std::optional<uint64_t> memory, size_t columns) {
  return table(all, memory, columns) + (columns == SIZE_MAX ? notes(all) : wrapped(notes(all), columns, 2));
}

nlohmann::ordered_json json_of(const RankMemory& rank, bool device_has_memory) {
  nlohmann::ordered_json out = {{"rank", rank.rank}};
  const PlannedBytes bytes = rank.in(MemoryKind::kAddresses, device_has_memory);
  for (size_t tag = 0; tag < bytes.size(); ++tag) out[kPlannedTags[tag]] = bytes[tag];
  out["total"] = rank.total();
  out["shared"] = rank.shared;
  if (device_has_memory) out["host"] = sum(rank.in(MemoryKind::kHost, true));
  out["file"] = rank.file;
  const auto or_null = [](const std::optional<uint64_t>& known) {
    return known ? nlohmann::ordered_json(*known) : nlohmann::ordered_json();
  };
  out["sent"] = or_null(rank.sent);
  out["sent_between_nodes"] = or_null(rank.sent_between_nodes);
  return out;
}

nlohmann::ordered_json json_of(const std::vector<Planned>& all, std::optional<uint64_t> memory) {
  nlohmann::ordered_json out;
  out["plans"] = nlohmann::ordered_json::array();
  for (const Planned& one : all) {
    nlohmann::ordered_json entry = {{"strategy", one.strategy}};
    if (!one.size.empty()) entry["size"] = one.size;
    if (!one.plan) {
      entry["problem"] = one.problem;
      out["plans"].push_back(std::move(entry));
      continue;
    }
    const MemoryPlan& plan = *one.plan;
    out["model"] = plan.model;
    out["programs"] = nlohmann::ordered_json::array();
    for (const MemoryPlan::Program& program : plan.programs)
      out["programs"].push_back({{"name", program.name}, {"is_evaluated", program.is_evaluated}});
    entry["parameters"] = plan.n_params;
    out["world_size"] = plan.world_size;
    entry["ranks_planned"] = plan.ranks.size();
    entry["largest_rank"] = json_of(plan.largest(), plan.device_has_memory);
    if (const std::optional<uint64_t> unique = plan.unique_of_all()) entry["unique_bytes_of_all_ranks"] = *unique;
    entry["memory_checkpoints"] = plan.memory_checkpoints;
    entry["comm_is_known"] = plan.knows_comm;
    entry["act_is_known"] = plan.knows_act;
    if (memory) entry["fits"] = sum(bytes_to_fit(plan, plan.largest())) <= *memory;
    out["plans"].push_back(std::move(entry));
  }
  return out;
}

MemoryPlan plan_of(const PreparedRun& run) {
  KvLocal kv;
  Progress progress(1);
  ProgressOfRank record(progress, 0);
  const auto nodes = run.n_hosts() > 1 ? std::make_shared<Nodes>(run.ranks_of_hosts)
                                       : std::make_shared<Nodes>(run.world_size, run.ranks_per_node);
  const RankSeat seat{0, nodes, kv, record, 0};
  return in_words_of_user(run.config, [&] { return plan_memory(run, run.config.clone(), seat); });
}

// The command line with `more`.
UserConfig user_config(const CommandLine& line, const Registry& registry, const std::vector<Override>& more) {
  std::vector<Override> overrides = line.overrides;
  overrides.insert(overrides.end(), more.begin(), more.end());
  UserConfig user = read_user_files(line, overrides, registry).user;
  static_cast<void>(replace_excluded_options(user));
  return user;
}

std::vector<std::string> all_strategies(const Registry& registry) {
  std::vector<std::string> ids = registry.ids_of(DDH_KIND_STRATEGY);
  std::sort(ids.begin(), ids.end());
  return ids;
}

// The values of the model's option `size`, but for "custom", which needs further options.
std::vector<std::string> sizes_of(const Plugin& model) {
  const Json schema = Json::parse(model.desc->config_schema == nullptr ? "{}" : model.desc->config_schema);
  std::vector<std::string> sizes;
  for (const Json& size : schema.value("/properties/size/enum"_json_pointer, Json::array()))
    if (size.is_string() && size != "custom") sizes.push_back(size.get<std::string>());
  if (sizes.empty())
    ddh::fail(DDH_INVALID_ARGUMENT, "--sizes all: model '", model.id(),
              "' has no list of sizes (model.size); leave --sizes out, or give options of the model");
  return sizes;
}

Planned plan_one(const CommandLine& line, Registry& registry, const RunPlace& place, LoaderRecord& record,
                 const std::string& strategy, const std::string& size) {
  Planned one{strategy, size, std::nullopt, ""};
  std::vector<Override> more;
  if (!strategy.empty()) more.push_back({"strategy.plugin", strategy, "--all-strategies"});
  if (!size.empty()) more.push_back({"model.size", size, "--sizes"});
  try {
    const PreparedRun run = prepare_run(user_config(line, registry, more), registry, place, Work::kTrain, &record);
    one.strategy = run.strategy.id();
    one.plan = plan_of(run);
  } catch (const ddh::Error& error) {
    const bool has_list = line.planning.all_strategies || line.planning.sizes == std::vector<std::string>{"all"};
    if (!has_list) throw;
    one.problem = plain_text(error.what());
  }
  return one;
}

// In the loader.
std::vector<Planned> plan_all(const CommandLine& line, Registry& registry, const RunPlace& place,
                              LoaderRecord& record) {
  std::vector<std::string> strategies = {""}, sizes = line.planning.sizes;
  if (line.planning.all_strategies) strategies = all_strategies(registry);
  if (sizes == std::vector<std::string>{"all"})
    sizes = sizes_of(prepare_run(user_config(line, registry, {}), registry, place, Work::kTrain, &record).model);
  if (sizes.empty()) sizes = {""};
  std::vector<Planned> out;
  for (const std::string& size : sizes)
    for (const std::string& strategy : strategies)
      out.push_back(plan_one(line, registry, place, record, strategy, size));
  return out;
}

// What a plan takes of the memory for which a run was refused. The transport does not count: it had taken its memory before.
uint64_t bytes_in(const MemoryPlan& plan, const Shortage& shortage) {
  std::vector<uint64_t> ranks;
  for (const RankMemory& rank : plan.ranks) {
    PlannedBytes bytes = rank.in(shortage.kind, plan.device_has_memory);
    bytes[kCommTag] = 0;
    ranks.push_back(sum(bytes));
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

std::string planned_memory(const PreparedRun& run) {
  try {
    const std::vector<Planned> one = {{run.strategy.id(), "", plan_of(run), ""}};
    return text_of(one, std::nullopt, terminal_columns(STDERR_FILENO, SIZE_MAX));
  } catch (const std::exception& error) {
    return ddh::str("the memory of this run can't be planned: ", plain_text(error.what()), "\n");
  }
}

int plan_run(const CommandLine& line, Registry& registry, std::ostream& out) {
  const UserConfig user = user_config(line, registry, {});
  RunPlace place = choose_place(user, registry, /*cluster=*/nullptr, kMostPlanned);
  place_on_hosts(Config(user, run_sections(user), /*plugin_sections=*/false), place);
  LoaderRecord record;
  const auto prepare = [&](LoaderRecord& of_loader) -> Prepared {
    const std::vector<Planned> all = plan_all(line, registry, place, of_loader);
    if (std::none_of(all.begin(), all.end(), [](const Planned& one) { return one.plan.has_value(); }))
      ddh::fail(DDH_FAILED_PRECONDITION, "no strategy could be planned: ",
                all.empty() ? "none was found" : ddh::str(all.front().strategy, ": ", all.front().problem));
    const std::optional<uint64_t> memory = line.planning.memory_bytes;
    out << (line.planning.json ? json_of(all, memory).dump(2) + "\n"
                               : text_of(all, memory, terminal_columns(STDOUT_FILENO, SIZE_MAX)));
    if (!out.flush()) ddh::fail(DDH_RESOURCE_EXHAUSTED, kStdoutFailed);
    return {};
  };
  const Outcome outcome = launch(LaunchArgs{}, prepare, record);
  if (!outcome.sentence.empty()) print_sentence(outcome.sentence);
  return outcome.exit_code;
}

}  // namespace ddhost
