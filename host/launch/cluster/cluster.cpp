// SPDX-License-Identifier: Apache-2.0
#include "launch/cluster/cluster.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <fstream>

#include "ddh/checksum.h"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {

AgentIdentity own_identity() {
  AgentIdentity me;
  me.host = host_name();
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat processes {};
  ::stat("/proc/self/ns/pid", &processes);
  me.machine = ddh::str(boot, " ", processes.st_ino, " ", ::geteuid());
  me.program = ddh::str(DDHOST_VERSION, " ", DDH_HEADER_CHECKSUM_TEXT);
  return me;
}

SignalsWhileJoining::SignalsWhileJoining() : awaited_{}, before_{} {
  sigemptyset(&awaited_);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    ::sigaction(number, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&awaited_, number);
  }
  ::pthread_sigmask(SIG_BLOCK, &awaited_, &before_);
}

SignalsWhileJoining::~SignalsWhileJoining() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

void SignalsWhileJoining::require_no_signal() const {
  const timespec at_once{};
  if (const int number = ::sigtimedwait(&awaited_, nullptr, &at_once); number > 0) throw JoinEnded{number};
}

void require_possible(int64_t ranks) {
  constexpr int64_t kMost = 1024;  // as on one host
  if (ranks > kMost)
    ddh::fail(DDH_INVALID_ARGUMENT, ranks, " ranks are more than the ", kMost, " that a run can have; start fewer");
}

std::unique_ptr<Cluster> Cluster::join(const Placement& placement, const ClusterSettings& settings) {
  if (!settings.hosts.empty()) {
    ClusterSettings own = settings;
    const Host* here = nullptr;
    int64_t ranks = 0;
    for (Host& host : own.hosts) {
      ranks += host.slots;
      host.is_here = is_this_host(host.name);
      if (!host.is_here) continue;
      if (here != nullptr)
        ddh::fail(DDH_INVALID_ARGUMENT, "'", here->name, "' and '", host.name,
                  "' of the hostfile are both this host; give ", "it one line");
      here = &host;
    }
    require_possible(ranks);
    Placement head;
    head.launcher = kSsh;
    head.n_tasks = static_cast<int>(own.hosts.size()) + (here == nullptr ? 1 : 0);
    return join_as_head(head, own);
  }
  return placement.task == 0 ? join_as_head(placement, settings) : join_as_member(placement, settings);
}

}  // namespace ddhost
