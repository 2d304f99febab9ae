// SPDX-License-Identifier: Apache-2.0
//
// cli/plan/plan.cpp: `ddhost plan`. Everything happens in the loader, as for a run; no rank is started.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <ostream>

#include "base/terminal.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/plan/planned_run.hpp"
#include "cli/run_hosts.hpp"
#include "config/run_length.hpp"
#include "ddh/sdk/plugin.hpp"
#include "draw/table.hpp"
#include "engine/loop/memory_plan.hpp"
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
      counted(static_cast<uint64_t>(plan.world_size), "rank"),
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

// "zero1, all ranks: param 1.2, grad 3.4; host 0.5, device 4.1"
std::string by_tag(const Planned& one) {
  const MemoryPlan& plan = *one.plan;
  const std::optional<PlannedBytes> bytes = plan.unique_of_all(MemoryKind::kAddresses);
  if (!bytes) return "";
  std::string out = ddh::str(plan.strategy, one.size.empty() ? "" : " at ", one.size, ", all ranks:");
  for (size_t tag = 0; tag < bytes->size(); ++tag)
    out += ddh::str(tag == 0 ? " " : ", ", kPlannedTags[tag], " ", megabytes((*bytes)[tag]));
  if (plan.device_has_memory)
    out += ddh::str("; host ", megabytes(sum(*plan.unique_of_all(MemoryKind::kHost))), ", device ",
                    megabytes(sum(*plan.unique_of_all(MemoryKind::kDevice))));
  return out + "\n";
}

// "zero2, gradients in blocks of rows, which no rank has whole: head.weight and 2 more (92.1 MB)"
std::string blocks_text(const Planned& one) {
  constexpr size_t kShownNames = 4;
  const std::vector<MemoryPlan::Gradient>& all = one.plan->in_blocks;
  if (all.empty()) return "";
  std::string names;
  uint64_t bytes = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i < kShownNames) names += ddh::str(i == 0 ? "" : ", ", all[i].parameter);
    bytes += all[i].bytes;
  }
  if (all.size() > kShownNames) names += ddh::str(" and ", all.size() - kShownNames, " more");
  return ddh::str(one.plan->strategy, one.size.empty() ? "" : " at ", one.size,
                  ", gradients in blocks of rows, which no rank has whole: ", plain_text(names), " (", megabytes(bytes),
                  " MB)\n");
}

// What checkpoints take of a host, and what each process takes beside its rank. All plans are made in one process, so they
// see the same data sets and libraries; the largest values are shown.
std::string beside_ranks(const std::vector<Planned>& all) {
  uint64_t kept = 0, copies = 0, data_sets = 0, libraries = 0;
  bool has_hosts = false;
  for (const Planned& one : all) {
    if (!one.plan) continue;
    const MemoryPlan& plan = *one.plan;
    kept = std::max(kept, plan.checkpoints.kept);
    copies = std::max(copies, plan.checkpoints.copies_of(static_cast<uint64_t>(plan.world_size)));
    data_sets = std::max(data_sets, plan.data_sets);
    libraries = std::max(libraries, plan.libraries);
    has_hosts = has_hosts || plan.has_hosts;
  }
  std::string out;
  if (kept + copies > 0)
    out += ddh::str("checkpoints take ", has_hosts ? "at most " : "", megabytes(kept + copies), " MB more of ",
                    has_hosts ? "each" : "the", " host: ", megabytes(copies), " for copies that are written\n");
  return out + ddh::str("each process has more: data sets ", megabytes(data_sets), ", libraries ", megabytes(libraries),
                        " (most of it shared by all)\n");
}

// What the columns do not show, and what the numbers leave out.
std::string notes(const std::vector<Planned>& all) {
  std::string out;
  for (const Planned& one : all)
    if (one.plan) out += by_tag(one) + blocks_text(one);
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
  out += beside_ranks(all);
  if (any([](const MemoryPlan& plan) { return !plan.unique_of_all(); }))
    out += ddh::str("of more than ", kMostPlannedRanks, " ranks the first and the last are planned\n");
  return out + "not counted: evaluations, batches, and what allocators keep\n";
}

std::string text_of(const std::vector<Planned>& all, std::optional<uint64_t> memory, size_t columns) {
  return table(all, memory, columns) + (columns == SIZE_MAX ? notes(all) : wrapped(notes(all), columns, 2));
}

nlohmann::ordered_json json_of(const PlannedBytes& bytes) {
  nlohmann::ordered_json out;
  for (size_t tag = 0; tag < bytes.size(); ++tag) out[kPlannedTags[tag]] = bytes[tag];
  return out;
}

nlohmann::ordered_json json_of(const RankMemory& rank, bool device_has_memory) {
  nlohmann::ordered_json out = {{"rank", rank.rank}};
  const PlannedBytes bytes = rank.in(MemoryKind::kAddresses, device_has_memory);
  out.update(json_of(bytes));
  out["total"] = rank.total();
  out["shared"] = rank.shared;
  if (device_has_memory) {
    out["host"] = sum(rank.in(MemoryKind::kHost, true));
    out["device"] = sum(rank.in(MemoryKind::kDevice, true));
  }
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
    if (const std::optional<uint64_t> unique = plan.unique_of_all()) {
      entry["unique_bytes_of_all_ranks"] = *unique;
      entry["all_ranks"] = json_of(*plan.unique_of_all(MemoryKind::kAddresses));
      if (plan.device_has_memory) {
        entry["all_ranks"]["host"] = sum(*plan.unique_of_all(MemoryKind::kHost));
        entry["all_ranks"]["device"] = sum(*plan.unique_of_all(MemoryKind::kDevice));
      }
    }
    entry["gradients_in_blocks"] = nlohmann::ordered_json::array();
    for (const MemoryPlan::Gradient& gradient : plan.in_blocks)
      entry["gradients_in_blocks"].push_back(gradient.parameter);
    entry["memory_checkpoints"] = plan.checkpoints.kept;
    entry["checkpoint_copies"] = plan.checkpoints.copies_of(static_cast<uint64_t>(plan.world_size));
    entry["data_sets"] = plan.data_sets;
    entry["libraries"] = plan.libraries;
    entry["comm_is_known"] = plan.knows_comm;
    entry["act_is_known"] = plan.knows_act;
    if (memory) entry["fits"] = sum(bytes_to_fit(plan, plan.largest())) <= *memory;
    out["plans"].push_back(std::move(entry));
  }
  return out;
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
                 RunPlanner& planner, const std::string& strategy, const std::string& size) {
  Planned one{strategy, size, std::nullopt, ""};
  std::vector<Override> more;
  if (!strategy.empty()) more.push_back({"strategy.plugin", strategy, "--all-strategies"});
  if (!size.empty()) more.push_back({"model.size", size, "--sizes"});
  try {
    const PreparedRun run = prepare_run(user_config(line, registry, more), registry, place, Work::kTrain, &record);
    one.strategy = run.strategy.id();
    one.plan = planner.plan(run);
  } catch (const ddh::Error& error) {
    const bool has_list = line.planning.all_strategies || line.planning.sizes == std::vector<std::string>{"all"};
    if (!has_list) throw;
    one.problem = plain_text(error.what());
  }
  return one;
}

// Why nothing could be planned. What is said of several strategies in the same words is none of theirs.
std::string problem_of_all(const std::vector<Planned>& all) {
  if (all.empty()) return "no strategy was found";
  const std::string& first = all.front().problem;
  const bool is_same =
      all.size() > 1 && std::all_of(all.begin(), all.end(), [&](const Planned& one) { return one.problem == first; });
  return is_same ? first : ddh::str("no strategy could be planned: ", all.front().strategy, ": ", first);
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
  RunPlanner planner;
  for (const std::string& size : sizes)
    for (const std::string& strategy : strategies)
      out.push_back(plan_one(line, registry, place, record, planner, strategy, size));
  return out;
}

}  // namespace

std::string planned_memory(const PreparedRun& run) {
  try {
    const std::vector<Planned> one = {{run.strategy.id(), "", RunPlanner().plan(run), ""}};
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
      ddh::fail(DDH_FAILED_PRECONDITION, problem_of_all(all));
    const std::optional<uint64_t> memory = line.planning.memory_bytes;
    out << (line.planning.json ? json_document(json_of(all, memory))
                               : text_of(all, memory, terminal_columns(STDOUT_FILENO, SIZE_MAX)));
    if (!out.flush()) throw OutputError();
    return {};
  };
  const Outcome outcome = launch(LaunchArgs{}, prepare, record);
  if (outcome.sentence == kStdoutFailed) throw OutputError();
  if (!outcome.sentence.empty()) print_sentence(outcome.sentence);
  return outcome.exit_code;
}

}  // namespace ddhost
