// SPDX-License-Identifier: Apache-2.0
//
// launch/threads.hpp: ranks as threads of this process.
#pragma once

#include "launch/launch.hpp"

namespace ddhost {

Outcome launch_threads(const LaunchArgs& args, const RankFunction& rank_function);

}  // namespace ddhost
