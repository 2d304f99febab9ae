// SPDX-License-Identifier: Apache-2.0
//
// launch/supervisor.hpp: the launcher while the run goes on. One loop serves the store, follows the loader and the
// ranks, notices the user's signals and libraries that are overwritten, and leaves only when every process of the run has been
// waited for.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "launch/kv.hpp"
#include "launch/launch.hpp"
#include "launch/loader_record.hpp"
#include "launch/memory_kills.hpp"
#include "launch/signals.hpp"
#include "launch/verdict.hpp"
#include "launch/watchdog.hpp"

namespace ddhost {

// Notices that a library was overwritten in place while the run used it. Its code then changes in the memory of running ranks,
// and any call may crash.
class UsedFiles {
 public:
  explicit UsedFiles(const std::vector<std::string>& paths);
  // The first file whose content is another than at the start; "" if there is none. A file that was replaced by renaming
  // does no harm.
  [[nodiscard]] std::string overwritten() const;

 private:
  struct Used {
    std::string path;
    struct stat at_start;
  };
  std::vector<Used> files_;
};

class Supervisor {
 public:
  // All references outlive the object.
  Supervisor(const LaunchArgs& args, Progress& progress, LoaderRecord& record, SignalWatch& signals,
             std::vector<Fd> sockets);
  // Ensures that the loader and all ranks have ended, also after an exception.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  void set_loader(pid_t pid) { loader_ = pid; }
  // The loader inherits this object, but its sockets and processes belong to the launcher.
  void forget_in_child();

  Outcome run();

 private:
  struct Rank {
    pid_t pid = 0;
    bool running = false;
  };

  [[nodiscard]] Outcome own_outcome() const;
  [[nodiscard]] bool has_begun() const;
  [[nodiscard]] std::string numbers_after(const Outcome& outcome) const;
  [[nodiscard]] bool starts_again(const Outcome& outcome) const;
  [[nodiscard]] bool cluster_waits() const;
  void tell_end();
  void serve_cluster(const std::vector<pollfd>& polled);
  void failed_elsewhere(const ClusterNews::Failure& failure);
  void wait_for_news();
  void stop(const SignalWatch::Signal& signal);
  void watch();
  void end_run(const std::string& death);
  void reap();
  void reap_loader();
  void reap_rank(int rank);
  void loader_ended(int status);
  void take_over_ranks();
  void ranks_ended_together(int status);
  [[nodiscard]] std::string loader_death(int status) const;
  [[nodiscard]] std::string death_together(int status) const;
  void rank_failed(int rank, int status);
  [[nodiscard]] std::string rank_death(int rank, int status) const;
  [[nodiscard]] std::string out_of_memory(const std::string& who, const std::string& why,
                                          const std::string& where) const;
  [[nodiscard]] std::string cure(bool in_plugin) const;
  [[nodiscard]] std::string places(int rank) const;
  [[nodiscard]] bool is_running() const;
  [[nodiscard]] bool ranks_are_threads() const;
  void set_states(Watchdog::RankState state);
  void set_state(int rank, Watchdog::RankState state);
  void set_deadline(std::chrono::milliseconds from_now);
  void kill_all();

  const LaunchArgs& args_;
  Progress& progress_;
  LoaderRecord& record_;
  SignalWatch& signals_;
  KvServer kv_;
  Watchdog watchdog_;
  LoadWatch load_watch_;
  Standstill standstill_;
  const MemoryKills memory_kills_;
  std::optional<UsedFiles> libraries_;
  pid_t loader_ = 0;         // 0: it has ended
  std::vector<Rank> ranks_;  // processes
  std::optional<Outcome> without_ranks_;
  RunEnd end_;
  bool killing_ = false, stopped_after_failure_ = false;
  std::optional<int> exit_code_;  // the head's verdict
  bool has_told_end_ = false, has_lost_other_ = false, again_ = false;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
};

}  // namespace ddhost
