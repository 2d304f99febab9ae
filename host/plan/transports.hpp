// SPDX-License-Identifier: Apache-2.0
//
// plan/transports.hpp: which transports a run has on one host and on several, and what is refused.
#pragma once

#include <string>

#include "plan/prepare.hpp"

namespace ddhost {

// comm.plugin=auto becomes the transport that connects all ranks. With several hosts, of which one has several ranks, it stays
// auto, because there are two. Returns the value for the configuration; "": as it was given.
std::string choose_transport(const Config& choices, PreparedRun& plan);

// comm.inside=auto and comm.between=auto become what they are without the options.
void settle_auto_transports(Config& config);

// Refuses transports that can't connect the ranks of the run.
void check_transports(const PreparedRun& plan);

}  // namespace ddhost
