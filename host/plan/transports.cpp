// SPDX-License-Identifier: Apache-2.0
#include "plan/transports.hpp"

#include "config/compat.hpp"
#include "ddh/kind/comm.h"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {

std::string choose_transport(const Config& choices, PreparedRun& plan) {
  if (choices.text("comm.plugin") != kAutoComm) return "";
  plan.comm_key = plan.n_hosts() > 1 ? "comm.between" : "comm.inside";
  plan.wants_inside_comm = plan.n_hosts() > 1 && plan.world_size > plan.n_hosts();
  return plan.wants_inside_comm ? "" : choices.text(plan.comm_key);
}

void settle_auto_transports(Config& config) {
  for (const char* name : {"inside", "between"})
    if (const std::string key = ddh::str("comm.", name); config.text(key) == kAutoComm)
      config.set(key, default_options().at("comm").at(name), "derived");
}

void check_transports(const PreparedRun& plan) {
  if (plan.has_other_launchers && plan.ranks_per_node > 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "run.ranks_per_node=", plan.ranks_per_node,
              " simulates nodes on one host, and this run ",
              "has nodes of its own: the hosts of its launchers; leave it out");
  if (plan.has_other_launchers && plan.ranks_are_threads)
    ddh::fail(DDH_FAILED_PRECONDITION, "comm '", plan.comm.id(),
              "' has all ranks in one process, but other processes start ",
              "ranks of this run too; choose another --comm");
  for (const Plugin* plugin : {&plan.comm, &plan.host_comm})
    if (plan.n_hosts() > 1 && plugin->desc != nullptr && plugin->has_cap(DDH_CAP_SINGLE_HOST))
      ddh::fail(DDH_FAILED_PRECONDITION, "comm '", plugin->id(), "' connects ranks of one host, and this run has ",
                plan.n_hosts(), "; choose another ", plan.comm_key == "comm.plugin" ? "--comm" : plan.comm_key,
                ", or leave it out");
  if (!plan.wants_inside_comm) return;
  if (!plan.inside_comm.has_cap(DDH_CAP_SINGLE_HOST))
    ddh::fail(DDH_FAILED_PRECONDITION, "comm.inside '", plan.inside_comm.id(), "' is not for ranks of one host, which ",
              "comm.plugin=auto needs beside comm.between; leave out comm.inside, or name one transport with --comm");
  for (const Plugin* plugin : {&plan.comm, &plan.inside_comm})
    if (plugin->has_cap(DDH_CAP_DEVICE_BUFFERS) || plugin->has_cap(DDH_CAP_RANKS_ARE_THREADS))
      ddh::fail(DDH_FAILED_PRECONDITION, plugin == &plan.comm ? "comm.between" : "comm.inside", " '", plugin->id(),
                "' does not exchange host memory between processes, which comm.plugin=auto needs on several hosts; ",
                "choose another one, or name one transport with --comm");
}

}  // namespace ddhost
