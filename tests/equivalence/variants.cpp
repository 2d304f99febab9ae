// SPDX-License-Identifier: Apache-2.0
#include "equivalence/variants.hpp"

#include <algorithm>
#include <cmath>

#include "equivalence/shrink.hpp"

namespace ddhost::test {

namespace {

const std::vector<Variant>& built_in_ways() {
  static const std::string nvme = nvme_path();
  static const std::vector<Variant> kWays = {
      kReference,
      {"ddp", "shm", {}},
      {"ddp", "loop", {"comm.windows=copy"}},
      {"ddp", "shm", {"comm.windows=copy", "comm.overlap=true"}, true},
      {"zero1", "loop", {}},
      {"zero1", "shm", {}, true},
      {"zero1", "loop", {"comm.windows=copy", "comm.poison=true", "comm.overlap=true"}},
      {"zero2", "loop", {}},
      {"zero2", "shm", {}},
      {"zero2", "loop", {"comm.windows=copy", "comm.poison=true"}, true},
      {"zero2", "loop", {"comm.windows=copy", "comm.poison=true", "comm.overlap=true"}},
      {"zero3", "loop", {}},
      {"zero3", "shm", {}, true},
      {"zero3", "loop", {"comm.windows=copy", "comm.poison=true", "comm.overlap=true"}},
      {"zero3", "shm", {"comm.windows=copy", "comm.poison=true", "strategy.prefetch_units=0"}, true},
      {"zero3", "shm", {"strategy.prefetch_units=3"}},
      {"zero2",
       "shm",
       {"comm.windows=copy", "comm.poison=true", "comm.overlap=true", "strategy.reduce_bucket_bytes=1500"}},
      {"zero3", "shm", {"comm.windows=copy", "strategy.persistence_bytes=36", "strategy.reuse_bytes=100000"}},
      {"zero1", "shm", {"strategy.offload_optimizer.device=cpu"}},
      {"zero1", "loop", {"strategy.offload_optimizer.device=nvme", nvme, "comm.windows=copy", "comm.poison=true"}},
      {"zero2", "loop", {"strategy.offload_optimizer.device=cpu", "comm.windows=copy", "comm.poison=true"}},
      {"zero2", "shm", {"strategy.offload_optimizer.device=nvme", nvme}, true},
      {"zero3", "loop", {"strategy.offload_optimizer.device=cpu", "strategy.offload_optimizer.ratio=0.5"}},
      {"zero3", "shm", {"strategy.offload_optimizer.device=nvme", nvme}},
      {"fsdp", "loop", {}, true},
      {"fsdp", "shm", {"strategy.sharding_strategy=FULL_SHARD", "strategy.backward_prefetch=post"}},
      {"fsdp", "loop", {"comm.windows=copy", "comm.poison=true", "strategy.limit_all_gathers=false"}},
      {"fsdp", "shm", {"strategy.sharding_strategy=shard_grad_op"}},
      {"fsdp", "loop", {"strategy.sharding_strategy=shard_grad_op", "comm.windows=copy", "comm.poison=true"}, true},
      {"fsdp", "loop", {"strategy.sharding_strategy=shard_grad_op", "comm.windows=copy", "comm.overlap=true"}},
      {"fsdp", "shm", {"strategy.sharding_strategy=no_shard"}, true},
      {"fsdp", "loop", {"strategy.sharding_strategy=no_shard", "comm.windows=copy", "comm.poison=true"}},
      {"fsdp",
       "loop",
       {"comm.windows=copy", "comm.poison=true", "strategy.auto_wrap_policy=size", "strategy.min_num_params=200",
        "strategy.backward_prefetch=none", "strategy.forward_prefetch=false"}},
      {"fsdp", "shm", {"strategy.auto_wrap_policy=none", "strategy.reshard_after_forward=false"}},
      {"fsdp", "shm", {"strategy.cpu_offload=true"}},
      {"zero3_offload", "shm", {"strategy.offload_optimizer.device=none"}},
      {"zero3_offload", "loop", {"strategy.offload_optimizer.device=cpu"}, true},
      {"zero3_offload", "shm", {"strategy.offload_optimizer.device=nvme", nvme}},
      {"zero3_offload",
       "loop",
       {"strategy.offload_optimizer.device=nvme", nvme, "comm.windows=copy", "comm.poison=true", "comm.overlap=true",
        "strategy.io=pread"}},
      {"zero3_offload",
       "shm",
       {"strategy.offload_optimizer.device=cpu", "strategy.offload_param.device=cpu", "strategy.prefetch_units=3"}},
      {"zero3_offload",
       "shm",
       {"strategy.offload_optimizer.device=nvme", "strategy.offload_param.device=nvme", nvme},
       true},
      {"zero3_offload",
       "loop",
       {"strategy.offload_optimizer.device=none", "strategy.offload_param.device=nvme", nvme,
        "strategy.prefetch_units=0"}},
  };
  return kWays;
}

// Shrinking takes seconds. If many cells fail, the first few are enough.
bool may_shrink() {
  static int left = 3;
  return left-- > 0;
}

const char* given_strategy() { return std::getenv("DDHOST_STRATEGY"); }

// Variants of a strategy that has no options.
std::vector<Variant> ways_of(const std::string& strategy) {
  return {kReference,
          {strategy, "loop", {}, true},
          {strategy, "shm", {}, true},
          {strategy, "loop", {"comm.windows=copy", "comm.poison=true"}, true},
          {strategy, "shm", {"comm.windows=copy", "comm.poison=true", "comm.overlap=true"}, true}};
}

Options arguments(const Cell& cell, const std::string& final_file, const std::string& run_dir) {
  Options args = {"--strategy",
                  cell.way.strategy,
                  "--comm",
                  cell.way.comm,
                  "model.plugin=" + cell.model,  // options may name another, later
                  "--nproc",
                  std::to_string(cell.world),
                  "--save-final",
                  final_file,
                  "run.dir=" + run_dir,
                  "run.quiet=true",
                  "run.check_replicas=1",
                  "optimizer.lr=0.01"};
  if (cell.steps != kStepsOfOptions) args.push_back("train.steps=" + std::to_string(cell.steps));
  args.insert(args.end(), cell.way.options.begin(), cell.way.options.end());
  args.insert(args.end(), cell.options.begin(), cell.options.end());
  const Options checks = plugin_checks(args);
  args.insert(args.end(), checks.begin(), checks.end());
  return args;
}

// The model's values of a step's row, without the host's.
nlohmann::json metrics_of(nlohmann::json row) {
  for (const char* own : {"grad_norm", "lr", "step_ms", "skipped", "loss_scale"}) row.erase(own);
  for (auto at = row.begin(); at != row.end();) at = at.key().ends_with("_per_s") ? row.erase(at) : std::next(at);
  return row;
}

}  // namespace

const std::string& nvme_path() {
  static const std::string option = "strategy.nvme_path=" + std::filesystem::temp_directory_path().string();
  return option;
}

const std::vector<Mode>& built_in_modes() {
  static const std::vector<Mode> kModes = {
      {"ddp", {}},
      {"zero1", {}},
      {"zero2", {}},
      {"zero3", {}},
      {"zero1", {"strategy.offload_optimizer.device=nvme", nvme_path()}},
      {"zero2", {"strategy.offload_optimizer.device=cpu"}},
      {"zero3_offload", {"strategy.offload_optimizer.device=cpu", "strategy.offload_param.device=cpu"}},
      {"zero3_offload", {"strategy.offload_optimizer.device=nvme", "strategy.offload_param.device=nvme", nvme_path()}},
      {"zero3_offload",
       {"strategy.offload_optimizer.device=nvme", "strategy.offload_optimizer.ratio=0.5", "strategy.buffer_bytes=4096",
        nvme_path()}},
      {"fsdp", {"strategy.sharding_strategy=FULL_SHARD"}},
      {"fsdp", {"strategy.sharding_strategy=SHARD_GRAD_OP", "strategy.cpu_offload=true"}},
      {"fsdp", {"strategy.sharding_strategy=NO_SHARD"}},
      {"fsdp", {"strategy.sharding_strategy=HYBRID_SHARD"}, true},
      {"fsdp", {"strategy.sharding_strategy=SHARD_GRAD_OP"}},
  };
  return kModes;
}

Result attempt(const Cell& cell) {
  const TempFolder folder;
  Process process(arguments(cell, folder.file("final.safetensors"), folder.file("run")));
  Result result;
  result.cell = cell;
  result.code = process.wait();
  result.command = process.command();
  result.err = process.err();
  if (result.code != 0) return result;
  result.record = read_run(folder.path() / "run");
  result.weights = read_text(folder.file("final.safetensors"));
  result.loss = result.record.column("loss");
  result.grad_norm = result.record.column("grad_norm");
  for (const nlohmann::json& step : result.record.steps) result.metrics += metrics_of(step).dump() + "\n";
  for (const nlohmann::json& evaluation : result.record.evaluations) result.evaluations += evaluation.dump() + "\n";
  return result;
}

Result run(const Cell& cell) {
  Result result = attempt(cell);
  INFO(result.command << "\n" << result.err);
  if (result.code > 0 && may_shrink()) {  // not after a timeout
    const auto fails_so = [&result](const Cell& smaller) { return attempt(smaller).code == result.code; };
    if (!fails_so(cell)) FAIL("the run ended with " << result.code << ", but not when it was repeated");
    FAIL("the run ends with " << result.code << "; the shortest one that does:\n"
                              << command_line(shrink(cell, fails_so)));
  }
  REQUIRE(result.code == 0);
  if (cell.steps != kStepsOfOptions) REQUIRE(result.record.steps.size() == static_cast<size_t>(cell.steps));
  REQUIRE_FALSE(result.weights.empty());
  return result;
}
Result run(const Variant& way, int world, const Options& options, int steps) {
  return run({way, world, options, steps});
}

std::string command_line(const Cell& cell) {
  std::string line = ddhost_program();
  for (const std::string& arg : arguments(cell, cell.way.strategy + ".safetensors", "runs/" + cell.way.strategy))
    line += " " + arg;
  return line;
}

bool all_variants() { return std::getenv("DDHOST_ALL_VARIANTS") != nullptr; }

std::vector<Variant> taken_variants() {
  std::vector<Variant> out = given_strategy() != nullptr ? ways_of(given_strategy()) : built_in_ways();
  if (!all_variants())
    out.erase(std::remove_if(out.begin(), out.end(), [](const Variant& way) { return !way.always; }), out.end());
  return out;
}

std::vector<std::string> taken_strategies(const std::vector<std::string>& except) {
  if (given_strategy() != nullptr) return {given_strategy()};
  std::vector<std::string> out;
  for (const Variant& way : built_in_ways()) {
    const auto holds = [&](const std::vector<std::string>& names) {
      return std::find(names.begin(), names.end(), way.strategy) != names.end();
    };
    if (!holds(except) && !holds(out)) out.push_back(way.strategy);
  }
  return out;
}

bool same_bits(const Result& a, const Result& b) {
  return a.metrics == b.metrics && a.grad_norm == b.grad_norm && a.evaluations == b.evaluations &&
         a.weights == b.weights;
}

std::string shortest_commands(const Result& reference, const Result& other) {
  const Cell cell = shrink(other.cell, differs_from(reference.cell.way));
  return "these two differ, and nothing can be left out:\n  " + command_line(in_way(cell, reference.cell.way)) +
         "\n  " + command_line(cell);
}

void check_same_bits(const Result& reference, const Result& other) {
  if (same_bits(reference, other)) {
    SUCCEED();
    return;
  }
  INFO("reference: " << reference.command << "\nother:     " << other.command);
  const std::string shortest = may_shrink() ? shortest_commands(reference, other) : "";
  INFO(shortest);
  CHECK(other.metrics == reference.metrics);
  CHECK(other.grad_norm == reference.grad_norm);
  CHECK(other.evaluations == reference.evaluations);
  CHECK((other.weights == reference.weights));
}

int check_all_equal(int world, const Options& options) {
  const Result reference = run(kReference, world, options);
  int cells = 1;
  const std::vector<Variant> ways = taken_variants();
  for (size_t i = 1; i < ways.size(); ++i) {  // the first is the reference
    check_same_bits(reference, run(ways[i], world, options));
    ++cells;
  }
  return cells;
}

namespace {
double loss_of(const nlohmann::json& step) { return step.at("loss").get<double>(); }
double fall_of(const Result& result) {
  return loss_of(result.record.steps.front()) - loss_of(result.record.steps.back());
}
}  // namespace

double loss_distance(const Result& result, const Result& from) {
  double largest = 0;
  for (size_t i = 0; i < from.record.steps.size(); ++i) {
    const double expected = loss_of(from.record.steps[i]);
    const double distance = std::abs(loss_of(result.record.steps[i]) / expected - 1);
    if (std::isnan(distance)) return distance;
    largest = std::max(largest, distance);
  }
  return largest;
}

double fall_distance(const Result& result, const Result& from) { return std::abs(fall_of(result) / fall_of(from) - 1); }

uint64_t peak_bytes(const Result& result, size_t rank, const char* tag) {
  return result.record.summary.at("ranks").at(rank).at("memory_bytes").at(tag).at("peak");
}

uint64_t planned_bytes(const Result& result, size_t rank, const char* tag) {
  return result.record.summary.at("ranks").at(rank).at("plan_bytes").at(tag);
}

namespace {
constexpr const char* kPlannedTags[] = {"param", "grad", "optim"};
size_t ranks_of(const Result& result) { return result.record.summary.at("ranks").size(); }
}  // namespace

bool keeps_its_plan(const Result& result) {
  for (size_t rank = 0; rank < ranks_of(result); ++rank) {
    for (const char* tag : kPlannedTags) {
      if (peak_bytes(result, rank, tag) != planned_bytes(result, rank, tag)) return false;
    }
  }
  return true;
}

void check_plan(const Result& result) {
  INFO(result.command);
  std::string shortest;
  if (!keeps_its_plan(result) && may_shrink()) {
    shortest = command_line(shrink(result.cell, [](const Cell& cell) {
      const Result smaller = attempt(cell);
      return smaller.code == 0 && !keeps_its_plan(smaller);
    }));
  }
  INFO("shortest: " << shortest);
  REQUIRE(ranks_of(result) == static_cast<size_t>(result.cell.world));
  for (size_t rank = 0; rank < ranks_of(result); ++rank) {
    for (const char* tag : kPlannedTags) {
      INFO("rank " << rank << ", " << tag);
      CHECK(peak_bytes(result, rank, tag) == planned_bytes(result, rank, tag));
    }
  }
}

void check_counts(const Result& result) {
  INFO(result.command);
  const auto& counters = result.record.summary.at("counters");
  const auto& plan = result.record.summary.at("plan_calls");
  const int steps = result.cell.steps;
  CHECK(counters.value("comm.reduce", 0) + counters.value("comm.all_reduce", 0) ==
        steps * plan.at("reduce").get<int>());
  CHECK(counters.value("comm.publish", 0) + counters.value("comm.all_gather", 0) ==
        steps * plan.at("publish").get<int>());
}

}  // namespace ddhost::test
