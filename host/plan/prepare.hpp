// SPDX-License-Identifier: Apache-2.0
//
// plan/prepare.hpp: the steps between the command line and the start of the ranks.
#pragma once

#include <algorithm>
#include <iosfwd>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "engine/record/step_count.hpp"
#include "engine/settings/run_plan.hpp"
#include "launch/cluster/cluster.hpp"
#include "launch/loader_record.hpp"
#include "plan/device_choice.hpp"
#include "plan/resume_wish.hpp"
#include "plan/run_lock.hpp"
#include "plugin/registry.hpp"

namespace ddhost {

// What was there before make_run_folder.
struct FolderBefore {
  std::vector<std::filesystem::path> made;  // folders that it has created, the innermost first
  std::set<std::string> names;              // in the run's folder
  bool has_many = false;                    // `names` holds only those of a run's own files
  std::optional<StepNumbers> numbers;       // of a run that is there
};

// A plan, and further data that the command keeps.
struct PreparedRun : RunPlan {
  Config config;  // with all defaults and plugin options
  int world_size = 1;
  bool wants_codec = false;
  std::string comm_key = "comm.plugin";  // the option that names `comm`
  bool wants_inside_comm = false;
  bool ranks_are_threads = false;       // else one process each
  bool has_other_launchers = false;     // they start further ranks of this run, on this host or on others
  std::vector<int32_t> ranks_of_hosts;  // where the run has several hosts
  [[nodiscard]] int n_hosts() const { return std::max(1, static_cast<int>(ranks_of_hosts.size())); }
  std::vector<std::string> replaced;  // sentences: options of the file that the command line's plugins replace
  ResumeWish wish;
  std::shared_ptr<const RunLock> lock;  // of run_dir, from make_run_folder on
  FolderBefore before;                  // the same
};

// Where and on how many ranks a run computes.
struct RunPlace {
  DeviceChoice device;
  int world_size = 1;
  int local_size = 0;  // ranks on this host; 0: all
  bool has_other_launchers = false;
  std::vector<int32_t> ranks_of_hosts{};  // where there are several
};
// Also checks all of the host's own sections. Loads no plugin into this process.
// `most`: ranks.
// `cluster`: the other launchers, which decide the number of ranks; null: there are none.
RunPlace choose_place(const UserConfig& user, const Registry& registry, const Cluster* cluster = nullptr,
                      int most = kMaxRanks);

// Finds and loads the plugins, completes the configuration, and chooses the run's folder, but does not create it.
// `record`, if any, is told which library is being loaded.
PreparedRun prepare_run(UserConfig user, Registry& registry, const RunPlace& place, Work work = Work::kTrain,
                        LoaderRecord* record = nullptr);

}  // namespace ddhost
