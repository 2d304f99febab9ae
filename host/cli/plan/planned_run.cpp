// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/planned_run.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "cli/user_files.hpp"
#include "config/replaced.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {

MemoryPlan RunPlanner::plan(const PreparedRun& run, int most_ranks) {
  const auto nodes = run.n_hosts() > 1 ? std::make_shared<Nodes>(run.ranks_of_hosts)
                                       : std::make_shared<Nodes>(run.world_size, run.ranks_per_node);
  const RankSeat seat{0, nodes, kv_, record_, 0};
  return in_words_of_user(run.config, [&] { return planner_.plan(run, run.config.clone(), seat, most_ranks); });
}

UserConfig user_config(const CommandLine& line, const Registry& registry, const std::vector<Override>& more) {
  std::vector<Override> overrides = line.overrides;
  overrides.insert(overrides.end(), more.begin(), more.end());
  UserConfig user = read_user_files(line, overrides, registry).user;
  static_cast<void>(replace_excluded_options(user));
  return user;
}

std::string text_of_loader(Outcome& end, const std::function<std::string(LoaderRecord&)>& say) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    end = {1, ddh::str("can't make a pipe: ", std::strerror(errno)), std::nullopt};
    return "";
  }
  Fd read_end(ends[0]), write_end(ends[1]);
  LoaderRecord record;
  end = launch(
      LaunchArgs{},
      [&](LoaderRecord& of_loader) -> Prepared {
        const std::string text = say(of_loader);
        if (::write(write_end.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
          ddh::fail(DDH_INTERNAL, "can't write to a pipe: ", std::strerror(errno));
        return {};
      },
      record);
  write_end = Fd();
  if (end.exit_code != 0) return "";
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t n = 0; (n = ::read(read_end.get(), part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<size_t>(n));
  return text;
}

std::vector<std::string> all_strategies(const Registry& registry) {
  std::vector<std::string> ids = registry.ids_of(DDH_KIND_STRATEGY);
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace ddhost
