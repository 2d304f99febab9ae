// SPDX-License-Identifier: Apache-2.0
//
// cli/run_hosts.hpp: the hosts and the launchers of a run, from the configuration.
#pragma once

#include <memory>
#include <vector>

#include "cli/words/command_line.hpp"
#include "config/config.hpp"
#include "launch/cluster/cluster.hpp"
#include "plan/prepare.hpp"
#include "plugin/registry.hpp"
#include "survey/hosts.hpp"

namespace ddhost {

// Of the hostfile, without connecting to them.
std::vector<Host> hosts_of(const Config& host);

// What the hosts of the hostfile are asked before a run; without a hostfile this host alone.
SurveySettings survey_settings(const UserConfig& user, const Config& host, const Registry& registry);

// The launchers of the run, if another program has started several, or if there is a hostfile. Prints the table of the
// hostfile's hosts; throws CommandLineExit after a sentence for each that can't take part. `agents`: of a run that starts
// again; null if the hosts are to be asked and agents to be started. [blocks]
std::unique_ptr<Cluster> join_cluster(const CommandLine& line, const UserConfig& user, const Config& host,
                                      const Registry& registry, const std::shared_ptr<RemoteAgents>& agents);

// Whether it will join launchers. Connects to nothing.
bool has_cluster(const CommandLine& line, const Config& host, const Registry& registry);

// For a run that starts again: without the hosts that are gone, if launch.min_nodes are left and the samples of a step can stay
// the same. {}: with all hosts. Prints which are left out. [blocks]
std::vector<Override> without_lost_hosts(const UserConfig& user, const Config& host, const Registry& registry);

// Of several tasks that another launcher has started, the first prints what is wanted.
bool is_further_task(const Config& host, const Registry& registry);

// The ranks of a hostfile, without connecting to its hosts.
void place_on_hosts(const Config& host, RunPlace& place);
// The same run with `world_size` ranks: on this host, or on the first hosts of the hostfile of `host`, whose run.nproc that is.
RunPlace place_of(const RunPlace& place, int world_size, const Config& host);

}  // namespace ddhost
