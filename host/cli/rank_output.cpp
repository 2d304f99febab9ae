// SPDX-License-Identifier: Apache-2.0
#include "cli/rank_output.hpp"

#include <filesystem>
#include <string>

#include "ddh/sdk/plugin.hpp"
#include "launch/cluster/address.hpp"
#include "plan/run_folder.hpp"

namespace ddhost {
namespace {

constexpr const char* kOption = "launch.output";

}  // namespace

// Rank 0 speaks for the run. On several hosts its lines stay as on one.
NamedOutput named_output(const Config& host, const Cluster* cluster, int world_size) {
  const std::string& choice = host.text(kOption);
  RankRange ranks = cluster != nullptr ? cluster->mine() : RankRange{0, world_size};
  if (choice == "prefix") return {host_name(), ranks};
  if (choice != "auto" || cluster == nullptr) return {};
  if (ranks.first == 0 && ranks.count > 0) ranks = {1, ranks.count - 1};
  return {host_name(), ranks};
}

void require_own_output(const PreparedRun& run) {
  const std::string& choice = run.config.text(kOption);
  if (!run.ranks_are_threads || choice == "auto" || choice == "plain") return;
  ddh::fail(DDH_INVALID_ARGUMENT, kOption, "=", choice, " needs a process for each rank, and comm '", run.comm.id(),
            "' makes the ranks threads of one process; choose another transport, or leave ", kOption, " out");
}

void open_output(const PreparedRun& run, int rank) {
  if (run.config.text(kOption) != "files" || run.run_dir.empty()) return;
  const std::filesystem::path folder = run.run_dir / kOutputFolder;
  std::error_code ec;
  std::filesystem::create_directories(folder, ec);  // opening the file says what is wrong
  send_output_to(folder / ddh::str("rank-", rank, ".txt"));
}

}  // namespace ddhost
