// SPDX-License-Identifier: Apache-2.0
//
// cli/rank_output.hpp: where the output of ranks goes, by launch.output.
#pragma once

#include "config/config.hpp"
#include "launch/cluster/cluster.hpp"
#include "launch/output_relay.hpp"
#include "plan/prepare.hpp"

namespace ddhost {

// The ranks of this launcher whose lines begin with host and rank.
NamedOutput named_output(const Config& host, const Cluster* cluster, int world_size);

// Refuses a choice that needs a process for each rank in a run whose ranks are threads.
void require_own_output(const PreparedRun& run);

// In the process of a rank, before it writes anything.
void open_output(const PreparedRun& run, int rank);

}  // namespace ddhost
