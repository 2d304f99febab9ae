// SPDX-License-Identifier: Apache-2.0
#include "launch/cluster/cluster.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "ddh/checksum.h"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {

AgentIdentity own_identity() {
  AgentIdentity me;
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  me.host = name.data();
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat processes {};
  ::stat("/proc/self/ns/pid", &processes);
  me.machine = ddh::str(boot, " ", processes.st_ino, " ", ::geteuid());
  me.program = ddh::str(DDHOST_VERSION, " ", DDH_HEADER_CHECKSUM_TEXT);
  return me;
}

std::unique_ptr<Cluster> Cluster::join(const Placement& placement, const ClusterSettings& settings) {
  if (!settings.hosts.empty()) {
    const auto here = std::count_if(settings.hosts.begin(), settings.hosts.end(),
                                    [](const Host& host) { return is_this_host(host.name); });
    Placement head;
    head.launcher = kSsh;
    head.n_tasks = 1 + static_cast<int>(settings.hosts.size()) - static_cast<int>(here);
    return join_as_head(head, settings);
  }
  return placement.task == 0 ? join_as_head(placement, settings) : join_as_member(placement, settings);
}

}  // namespace ddhost
