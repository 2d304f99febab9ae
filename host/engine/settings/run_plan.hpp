// SPDX-License-Identifier: Apache-2.0
//
// engine/settings/run_plan.hpp: the decisions that are made before the ranks start. Every rank reads the same plan.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tensor_files.hpp"
#include "engine/calls/plugin.hpp"
#include "engine/calls/rank_record.hpp"
#include "engine/services/optim/own_optims.hpp"
#include "engine/state/final_weights.hpp"

namespace ddhost {

struct Manifest;

// A hash of something that must be equal on every rank.
struct Fingerprint {
  std::string of;  // "strategy", "configuration"
  uint64_t hash;
};

enum class Work { kTrain, kEvaluate, kGenerate };

struct RunPlan {
  Work work = Work::kTrain;
  bool prints_json = false;  // of an evaluation
  Plugin strategy, model, comm, device, schedule;
  bool strategy_is_own = false;  // it is in the program's own plugin folders
  std::string device_reason;     // why device.plugin=auto is this device; empty: the user named it
  // The transport of host memory, where `comm` takes buffers of the device only (comm.host); else there is none.
  Plugin host_comm;
  [[nodiscard]] bool has_host_comm() const { return host_comm.desc != nullptr; }
  // The transport between the ranks of one host, where `comm` connects several hosts (comm.inside); else there is none.
  Plugin inside_comm;
  [[nodiscard]] bool has_inside_comm() const { return inside_comm.desc != nullptr; }
  // "shm", "shm and gloo": the transports of host memory, for people.
  [[nodiscard]] std::string transports() const {
    return has_inside_comm() ? inside_comm.id() + " and " + comm.id() : comm.id();
  }
  Plugin codec;  // of gradients; none without codec.plugin
  [[nodiscard]] bool has_codec() const { return codec.desc != nullptr; }
  // Further schedules that phases name, by their sections: "schedule_kg".
  struct PhaseSchedule {
    std::string section;
    Plugin plugin;
  };
  std::vector<PhaseSchedule> phase_schedules;
  std::vector<Plugin> monitors;  // of monitor.plugins; rank 0 uses them
  // In the order of train.optimizers: ddh_program_desc.optimizer is an index.
  struct Optimizer {
    std::string section;  // of its options: "optimizer", "optimizer_kg"
    Plugin plugin;
  };
  std::vector<Optimizer> optimizers;
  std::vector<Optimizer> followers;  // of train.followers, with the section "follower.ema"
  int ranks_per_node = 0;            // 0 = all on one node
  int threads_per_rank = 1;          // of the libraries that plugins compute with
  std::string instruction_set;       // "AuthenticAMD AVX-512": other instructions may give other bits
  std::string facts;                 // of a training: a JSON object for run.json (engine/record/run_history.hpp)
  std::filesystem::path run_dir;     // absolute, exists, writable; empty if the run writes nothing
  std::vector<std::filesystem::path> resume;  // checkpoints to resume from, the newest first; empty: a new run
  // checkpoint.memory_every: there are other launchers, so each host keeps parts (checkpoint/host_parts.hpp).
  bool memory_by_host = false;
  // Then the ranks look for a newer checkpoint than those of `resume` in the memory of the hosts.
  struct MemoryResume {
    uint64_t first_run = 0;  // StepNumbers::first_run of the run
    std::string otherwise;   // why the run must not begin anew if there is none at all; "": it may
    // Throws if this run can't go on from such a checkpoint. Returns warnings. `of`: the checkpoint, for people.
    std::function<std::vector<std::string>(const Manifest& manifest, const std::string& of)> check;
  };
  std::optional<MemoryResume> memory_resume;
  std::map<std::string, ConvertedFile>
      converted;  // files of train.init_from that another program wrote, by their paths
  std::vector<Fingerprint> fingerprints;
  std::shared_ptr<const FinalWeights> final_weights;  // of train.save_final; null: none
  // Adds the changes with which a training fits. Rank 0 calls it when it refuses the run, because it has the libraries in
  // memory already. null: the launcher seeks them.
  std::function<Shortage(Shortage)> with_changes;
  // Loads an optimizer that a strategy makes for tensors of its own. Ranks that are threads may call it at once.
  FindOptimizer find_optimizer;
};

// The plugins on which a checkpoint depends.
inline std::vector<const Plugin*> used_plugins(const RunPlan& plan) {
  std::vector<const Plugin*> out = {&plan.model, &plan.strategy};
  for (const RunPlan::Optimizer& optimizer : plan.optimizers) out.push_back(&optimizer.plugin);
  for (const RunPlan::Optimizer& follower : plan.followers) out.push_back(&follower.plugin);
  out.push_back(&plan.schedule);
  for (const RunPlan::PhaseSchedule& schedule : plan.phase_schedules) out.push_back(&schedule.plugin);
  if (plan.has_codec()) out.push_back(&plan.codec);
  out.push_back(&plan.comm);
  if (plan.has_inside_comm()) out.push_back(&plan.inside_comm);
  out.push_back(&plan.device);
  return out;
}

}  // namespace ddhost
