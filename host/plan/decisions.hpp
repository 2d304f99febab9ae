// SPDX-License-Identifier: Apache-2.0
//
// plan/decisions.hpp: what the head of a run on several hosts decides, and the other hosts take over: the effective
// configuration, the run's folder, the checkpoint that it resumes from, and the hidden files of the final weights. The hosts
// share the folders by one path.
#pragma once

#include "plan/prepare.hpp"

namespace ddhost {

// The head's, after the run's folder exists.
void publish_decisions(const PreparedRun& run, Kv& kv);

// On another host, before the run is prepared. Waits for the head. Error: DDH_ABORTED if the head has failed.
Json await_decisions(Kv& kv, std::chrono::milliseconds timeout);
// The options that the preparation checks, as the head has chosen them.
std::vector<Override> overrides_of(const Json& decisions);
// After the run is prepared. Error: a folder that this host does not have.
void take_over(PreparedRun& run, const Json& decisions);

}  // namespace ddhost
