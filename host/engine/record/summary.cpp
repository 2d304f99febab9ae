// SPDX-License-Identifier: Apache-2.0
#include "engine/record/summary.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/table.hpp"
#include "base/terminal.hpp"
#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/record/progress_text.hpp"

namespace ddhost {
namespace {

RankSummary own_summary(RankServices& services, const ddh_plan& plan, uint64_t planned_act, const AnonMarks& anon) {
  RankSummary mine;
  mine.plan = plan;
  mine.planned_act = planned_act;
  for (size_t tag = 0; tag < kTagCount; ++tag) mine.memory[tag] = services.memory.usage(static_cast<int32_t>(tag));
  mine.time_ms = services.clock.split_ms();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  mine.peak_rss_bytes = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
  mine.process = process_memory();
  mine.anon = anon;
  mine.device_has_memory = !services.device->is_host_memory();
  return mine;
}

nlohmann::ordered_json or_null(uint64_t bytes) {
  return bytes == DDH_PLAN_UNKNOWN ? nlohmann::ordered_json() : nlohmann::ordered_json(bytes);
}

nlohmann::ordered_json planned_bytes(const RankSummary& rank) {
  const ddh_plan& plan = rank.plan;
  return {
      {"param", plan.param_bytes},        {"grad", plan.grad_bytes},
      {"optim", plan.optim_bytes},        {"act", or_null(rank.planned_act > 0 ? rank.planned_act : DDH_PLAN_UNKNOWN)},
      {"comm", or_null(plan.comm_bytes)}, {"file", plan.file_bytes}};
}

constexpr size_t kMostShown = 4;  // ranks with a column each
bool is_many(size_t ranks) { return ranks > kMostShown; }

std::string share_text(double percent) { return number_as("%.1f", percent); }

// The least, the median and the most of a value over the ranks.
template <class All, class Value, class Text>
std::array<std::string, 3> spread_of(const All& all, Value&& value, Text&& text) {
  std::vector<decltype(value(all[0]))> values;
  for (const auto& one : all) values.push_back(value(one));
  std::sort(values.begin(), values.end());
  return {text(values.front()), text(values[(values.size() - 1) / 2]), text(values.back())};
}

template <class... Args>
void line(std::string& out, const char* format, Args... args) {
  char text[256];
  std::snprintf(text, sizeof text, format, args...);
  out += text;
}

std::string signed_bytes_text(int64_t bytes) {
  return bytes < 0 ? "-" + bytes_text(static_cast<uint64_t>(-bytes)) : bytes_text(static_cast<uint64_t>(bytes));
}

}  // namespace

Summary::Summary(RankServices& services, const ddh_plan& plan, uint64_t planned_act, const AnonMarks& anon)
    : ranks_(static_cast<size_t>(services.seat.world_size())), counters_(services.clock.counters()) {
  const RankSummary mine = own_summary(services, plan, planned_act, anon);
  services.comm->all_gather_bytes(&mine, ranks_.data(), sizeof mine, "summary");
}

uint64_t Summary::unique_bytes(size_t tag) const {
  uint64_t bytes = 0;
  for (const RankSummary& r : ranks_) bytes += r.memory[tag].unique_peak_bytes;
  return bytes;
}

namespace {

// The ranks that are threads of one process.
struct RanksOfProcess {
  ProcessMemory memory;
  int64_t n = 0;
  uint64_t tagged = 0;
  AnonMarks anon{UINT64_MAX, UINT64_MAX, 0};
  void add(const RankSummary& rank, uint64_t its_tagged) {
    if (n++ == 0) memory = rank.process;
    tagged += its_tagged;
    anon.at_start = std::min(anon.at_start, rank.anon.at_start);
    anon.before_model = std::min(anon.before_model, rank.anon.before_model);
    anon.after_model = std::max(anon.after_model, rank.anon.after_model);
  }
};

}  // namespace

// Ranks that are threads of one process share evenly what is not tagged. Pages that were never touched are in no process, so
// tags may have more bytes than there are.
std::vector<Summary::Split> Summary::splits() const {
  std::map<int64_t, RanksOfProcess> processes;  // by pid
  std::vector<uint64_t> tagged(ranks_.size(), 0);
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const RankSummary& rank = ranks_[r];
    if (rank.process.pss_bytes == 0) return {};
    for (const TagUsage& tag : rank.memory) tagged[r] += rank.device_has_memory ? 0 : tag.unique_now_bytes;
    processes[rank.process.pid].add(rank, tagged[r]);
  }
  std::vector<Split> out;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const RanksOfProcess& ranks = processes.at(ranks_[r].process.pid);
    const ProcessMemory& all = ranks.memory;
    const uint64_t mapped = all.libraries + all.files + all.stacks;
    const uint64_t untagged_there = all.pss_bytes - std::min(all.pss_bytes, mapped);
    const double share = ranks.tagged == 0 ? 0.0 : static_cast<double>(tagged[r]) / static_cast<double>(ranks.tagged);
    // Blocks with tags are in regions that ranks share, or came after the model was made, as those of allocators did. malloc
    // maps large blocks, but puts even those of some MB into its heap once it has freed a mapped one.
    const uint64_t private_tags = ranks.tagged - std::min(ranks.tagged, all.shared_memory);
    const uint64_t blocks = all.huge + all.anon_rss - std::min(all.anon_rss, ranks.anon.after_model);
    // What the loader allocated: pages that other ranks share, and those that this process has written since.
    const uint64_t written = ranks.anon.at_start - std::min(ranks.anon.at_start, all.shared_anon_rss);
    const uint64_t grown = ranks.anon.after_model - std::min(ranks.anon.after_model, ranks.anon.before_model);
    Split& split = out.emplace_back();
    split.tags = static_cast<int64_t>(static_cast<double>(std::min(ranks.tagged, untagged_there)) * share);
    split.pools = static_cast<int64_t>(blocks - std::min(blocks, private_tags)) / ranks.n;
    split.data = static_cast<int64_t>(grown) / ranks.n;
    split.libraries = static_cast<int64_t>(all.libraries + all.shared_anon + written) / ranks.n;
    split.files = static_cast<int64_t>(all.files) / ranks.n;
    split.stacks = static_cast<int64_t>(all.stacks) / ranks.n;
    split.pss = static_cast<int64_t>(all.pss_bytes) / ranks.n;
  }
  return out;
}

std::string Summary::memory_text(size_t columns) const {
  std::vector<std::string> header = {""};
  if (is_many(ranks_.size()))
    header.insert(header.end(), {"now, most", "peak, least", "median", "most"});
  else
    for (size_t r = 0; r < ranks_.size(); ++r) header.push_back(ddh::str("rank ", r));
  header.emplace_back("unique");
  FittedTable table(std::move(header));
  for (size_t tag = 0; tag < kTagCount; ++tag) {
    std::vector<std::string> row = {kTagNames[tag]};
    if (is_many(ranks_.size())) {
      row.push_back(spread_of(
          ranks_, [tag](const RankSummary& r) { return r.memory[tag].now_bytes; }, bytes_text)[2]);
      const auto peak = [tag](const RankSummary& r) { return r.memory[tag].peak_bytes; };
      for (std::string& cell : spread_of(ranks_, peak, bytes_text)) row.push_back(std::move(cell));
    } else {
      for (const RankSummary& r : ranks_)
        row.push_back(bytes_text(r.memory[tag].now_bytes) + " / " + bytes_text(r.memory[tag].peak_bytes));
    }
    row.push_back(bytes_text(unique_bytes(tag)));
    table.add(std::move(row));
  }
  return wrapped(is_many(ranks_.size())
                     ? "memory of the ranks, addressable (unique: shared pages counted once per machine)\n"
                     : "memory (now / peak by rank, addressable; unique: shared pages counted once per "
                       "machine)\n",
                 columns, 2) +
         table.text(columns);
}

std::string Summary::process_text(size_t columns) const {
  const std::vector<Split> all_splits = splits();
  if (all_splits.empty()) return "";
  std::vector<std::string> header = {""};
  if (is_many(ranks_.size()))
    header.insert(header.end(), {"least", "median", "most"});
  else
    for (size_t r = 0; r < ranks_.size(); ++r) header.push_back(ddh::str("rank ", r));
  header.emplace_back("all");
  FittedTable table(std::move(header));
  const auto add = [&](const char* name, const auto& part) {
    std::vector<std::string> row = {name};
    int64_t all = 0;
    for (const Split& split : all_splits) all += part(split);
    if (is_many(ranks_.size()))
      for (std::string& cell : spread_of(all_splits, part, signed_bytes_text)) row.push_back(std::move(cell));
    else
      for (const Split& split : all_splits) row.push_back(signed_bytes_text(part(split)));
    row.push_back(signed_bytes_text(all));
    table.add(std::move(row));
  };
  if (!ranks_.front().device_has_memory) add("tags", [](const Split& s) { return s.tags; });
  add("pools", [](const Split& s) { return s.pools; });
  add("data sets", [](const Split& s) { return s.data; });
  add("libraries", [](const Split& s) { return s.libraries; });
  add("files", [](const Split& s) { return s.files; });
  add("stacks", [](const Split& s) { return s.stacks; });
  add("difference", [](const Split& s) { return s.difference(); });
  add("PSS", [](const Split& s) { return s.pss; });
  return wrapped("memory of the processes now (PSS: a page that n processes share counts as 1/n)\n", columns, 2) +
         table.text(columns) +
         wrapped(
             "  pools: blocks of allocators, with freed activations; files: mapped data; difference: what nobody "
             "names\n",
             columns, 2);
}

std::string Summary::time_text(size_t columns) const {
  std::vector<std::string> header = {""};
  header.insert(header.end(), kSpanNames.begin(), kSpanNames.end());
  FittedTable table(std::move(header));
  const auto share = [](const RankSummary& rank, size_t kind) {
    double total = 0;
    for (const double ms : rank.time_ms) total += ms;
    return total > 0 ? 100 * rank.time_ms[kind] / total : 0.0;
  };
  std::vector<std::vector<std::string>> rows;
  if (is_many(ranks_.size()))
    for (const char* name : {"least", "median", "most"}) rows.push_back({name});
  else
    for (size_t r = 0; r < ranks_.size(); ++r) rows.push_back({ddh::str("rank ", r)});
  for (size_t kind = 0; kind < kSpanKinds; ++kind) {
    const std::array<std::string, 3> spread = spread_of(
        ranks_, [&](const RankSummary& rank) { return share(rank, kind); }, share_text);
    for (size_t r = 0; r < rows.size(); ++r)
      rows[r].push_back(is_many(ranks_.size()) ? spread[r] : share_text(share(ranks_[r], kind)));
  }
  for (std::vector<std::string>& row : rows) table.add(std::move(row));
  return "time, % of the loop\n" + table.text(columns);
}

void Summary::set_work(std::vector<ProgramWork> work, RankPeak peak) {
  work_ = std::move(work);
  peak_ = std::move(peak);
}

std::string Summary::work_text() const {
  std::string out;
  for (const ProgramWork& work : work_) {
    line(out, "work of program '%.80s' in micro-batches of %u, as the model estimates it\n", work.program.c_str(),
         work.estimate.n_samples);
    line(out, "  %.4g GFLOP/s on all ranks, %.4g on each\n", work.flops_per_s() / 1e9,
         flops_per_s_of_a_rank(work) / 1e9);
    if (peak_.flops_per_s > 0)
      line(out, "  %.1f %% of the %s peak of a rank's %d threads, which is %.4g GFLOP/s, measured on rank 0 (MFU)\n",
           100 * mfu(work), peak_.type.c_str(), peak_.threads, peak_.flops_per_s / 1e9);
    line(out, "  activations that a micro-batch keeps for its backward: %llu bytes, without recomputation\n",
         static_cast<unsigned long long>(work.estimate.activation_bytes));
  }
  if (work_.empty()) return out;
  uint64_t peak = 0;
  for (const RankSummary& r : ranks_) peak = std::max(peak, r.memory[DDH_TAG_ACT].peak_bytes);
  line(out, "activations at the peak of a rank, with temporary tensors: %llu bytes\n",
       static_cast<unsigned long long>(peak));
  return out;
}

std::string Summary::text(size_t columns) const {
  return memory_text(columns) + process_text(columns) + time_text(columns) + wrapped(work_text(), columns, 4);
}

std::string Summary::json(const RankServices& services, int64_t last_step, const RunOutput::Totals& totals) const {
  nlohmann::ordered_json out;
  out["steps"] = last_step;
  out["mean_step_ms"] = totals.mean_step_ms();
  out["mean_" + totals.items_name + "_per_s"] = totals.items_per_s();
  out["seconds"] = totals.seconds;
  out["world_size"] = services.seat.world_size();
  const std::vector<Split> all_splits = splits();
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const RankSummary& r = ranks_[rank];
    nlohmann::ordered_json memory, time, process;  // process null: not known
    for (size_t tag = 0; tag < kTagCount; ++tag) {
      memory[kTagNames[tag]] = {{"now", r.memory[tag].now_bytes},
                                {"peak", r.memory[tag].peak_bytes},
                                {"unique_peak", r.memory[tag].unique_peak_bytes}};
    }
    for (size_t kind = 0; kind < kSpanKinds; ++kind) time[kSpanNames[kind]] = r.time_ms[kind];
    if (!all_splits.empty()) {
      const Split& split = all_splits[rank];
      process = {{"tags", split.tags},
                 {"pools", split.pools},
                 {"data_sets", split.data},
                 {"libraries", split.libraries},
                 {"files", split.files},
                 {"stacks", split.stacks},
                 {"difference", split.difference()},
                 {"pss", split.pss}};
    }
    out["ranks"].push_back({{"memory_bytes", memory},
                            {"plan_bytes", planned_bytes(r)},
                            {"time_ms", time},
                            {"peak_rss_bytes", r.peak_rss_bytes},
                            {"process_bytes", process}});
  }
  for (size_t tag = 0; tag < kTagCount; ++tag) out["unique_peak_bytes"][kTagNames[tag]] = unique_bytes(tag);
  const ddh_plan& plan = ranks_.front().plan;
  out["plan_bytes"] = planned_bytes(ranks_.front());  // of rank 0, like the counters
  out["plan_calls"] = {{"reduce", plan.reduce_calls}, {"publish", plan.publish_calls}};
  out["plan_sent_bytes"] = {{"all", or_null(plan.sent_bytes)},
                            {"between_nodes", or_null(plan.sent_between_nodes_bytes)}};
  for (const ProgramWork& work : work_) {
    nlohmann::ordered_json estimate = {{"program", work.program},
                                       {"micro_batch", work.estimate.n_samples},
                                       {"forward_flops", work.estimate.forward_flops},
                                       {"backward_flops", work.estimate.backward_flops},
                                       {"activation_bytes", work.estimate.activation_bytes},
                                       {"flops_per_s", work.flops_per_s()},
                                       {"flops_per_s_of_a_rank", flops_per_s_of_a_rank(work)}};
    if (peak_.flops_per_s > 0) {
      estimate["peak_flops_per_s_of_a_rank"] = peak_.flops_per_s;
      estimate["peak_type"] = peak_.type;
      estimate["mfu"] = mfu(work);
    }
    out["estimates"].push_back(std::move(estimate));
  }
  out["counters"] = counters_;
  out["versions"] = {{"ddhost", DDHOST_VERSION},
                     {"abi", std::to_string(DDH_ABI_MAJOR) + "." + std::to_string(DDH_ABI_MINOR)}};
  return out.dump();
}

}  // namespace ddhost
