// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/planned_run.hpp"

#include <algorithm>

#include "cli/user_files.hpp"
#include "config/replaced.hpp"
#include "ddh/sdk/plugin.hpp"
#include "launch/kv.hpp"
#include "launch/progress.hpp"

namespace ddhost {

MemoryPlan plan_of(const PreparedRun& run) {
  KvLocal kv;
  Progress progress(1);
  ProgressOfRank record(progress, 0);
  const auto nodes = run.n_hosts() > 1 ? std::make_shared<Nodes>(run.ranks_of_hosts)
                                       : std::make_shared<Nodes>(run.world_size, run.ranks_per_node);
  const RankSeat seat{0, nodes, kv, record, 0};
  return in_words_of_user(run.config, [&] { return plan_memory(run, run.config.clone(), seat); });
}

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

}  // namespace ddhost
