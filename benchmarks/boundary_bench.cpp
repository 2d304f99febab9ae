// SPDX-License-Identifier: Apache-2.0
//
// What the plugin boundary costs.
//   boundary_bench                nanoseconds of a call through a loaded library's table, and calls of a step
//   boundary_bench key=value ...  a run like `ddhost --strategy zero1 key=value ...`, with the same plugins linked into this
//                                 program instead of loaded: the step times of the two should not differ
#include <spdlog/logger.h>
#include <spdlog/sinks/null_sink.h>

#include <chrono>
#include <cstdio>
#include <iostream>

#include "engine/calls/instance.hpp"
#include "engine/loop/rank.hpp"
#include "engine/services/tables/interfaces.hpp"
#include "launch/launch.hpp"
#include "plan/prepare.hpp"
#include "plan/resume.hpp"
#include "plan/run_folder.hpp"

DDH_EXTERN_C ddh_rc ddh_entry_zero1(const ddh_host*, const ddh_module**, ddh_err*) DDH_NX;
DDH_EXTERN_C ddh_rc ddh_entry_adamw(const ddh_host*, const ddh_module**, ddh_err*) DDH_NX;
DDH_EXTERN_C ddh_rc ddh_entry_shm(const ddh_host*, const ddh_module**, ddh_err*) DDH_NX;
DDH_EXTERN_C ddh_rc ddh_entry_gpt(const ddh_host*, const ddh_module**, ddh_err*) DDH_NX;

namespace {

using namespace ddhost;

PreparedRun plan_of(const std::vector<Override>& overrides) {
  Registry registry(&host_interface, DDHOST_BUILD_DIR, linked_plugins());
  const UserConfig user = UserConfig::read("", overrides);
  return prepare_run(user, registry, choose_place(user, registry));
}

void measure_calls() {
  constexpr int kCalls = 50'000'000;
  const PreparedRun plan = plan_of({{"run.nproc", "1", ""}});
  KvLocal kv;
  Progress progress(1);
  ProgressOfRank record(progress, 0);
  const RankSeat seat{0, std::make_shared<Nodes>(1, 0), kv, record, 1};
  RankServices services(seat, plan.config.clone(),
                        std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::null_sink_mt>()));
  PluginSeat plugin_seat(services, "optimizer");
  const Instance optimizer(plan.optimizers.front().plugin, plugin_seat.host(), "optimizer");
  const auto& table = optimizer.require<ddh_optimizer_api>(DDH_OPTIMIZER_IFACE, DDH_OPTIMIZER_API_MIN_SIZE);
  uint64_t sum = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) sum += table.slot_count(optimizer.get());
  const double ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / kCalls;
  // The 0.8M GPT has 7 units. Per unit: acquire, forward or backward, grads_ready, release; windows opened and closed
  // twice, an exchange's three calls, write_begin, update and commit; as many marks again in the transport.
  constexpr uint64_t kUnits = 7, kCallsPerStep = kUnits * (7 + 2 * (8 + 3 + 3)) + 10;
  std::printf("%.2f ns a call, about %llu calls a step: %.2f us (%llu)\n", ns,
              static_cast<unsigned long long>(kCallsPerStep), ns * static_cast<double>(kCallsPerStep) / 1e3,
              static_cast<unsigned long long>(sum));
}

Plugin linked(ddh_plugin_entry_fn entry, const ProbeHost& probe) {
  const ddh_module* module = nullptr;
  ddh::call(entry, &probe.host(), &module);
  return {module, module->desc[0], "/proc/self/exe"};
}

int run_linked(int argc, char** argv) {
  std::vector<Override> overrides = {{"strategy.plugin", "zero1", ""}};
  for (int i = 1; i < argc; ++i) overrides.push_back(parse_override(argv[i]));
  PreparedRun plan = plan_of(overrides);  // the options' schemas come from the loaded libraries
  const ProbeHost probe(&host_interface, MissingInterfaces::kRefuse);
  plan.strategy = linked(ddh_entry_zero1, probe);
  plan.optimizers.front().plugin = linked(ddh_entry_adamw, probe);
  plan.comm = linked(ddh_entry_shm, probe);
  plan.model = linked(ddh_entry_gpt, probe);
  make_run_folder(plan);
  plan.fingerprints = fingerprints_of(plan);
  LaunchArgs args;
  args.world_size = plan.world_size;
  const Outcome outcome = launch(args, [&](const RankSeat& seat) { return run_rank(plan, plan.config.clone(), seat); });
  if (!outcome.sentence.empty()) std::cerr << outcome.sentence << '\n';
  return outcome.exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 1) return run_linked(argc, argv);
    measure_calls();
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "boundary_bench: " << e.what() << '\n';
    return 1;
  }
}
