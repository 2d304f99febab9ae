// SPDX-License-Identifier: Apache-2.0
//
// launch/threads.hpp: ranks as threads of this process, a child of the launcher.
#pragma once

#include "launch/launch.hpp"

namespace ddhost {

// Runs all ranks and returns the exit code of the process: 0 if all are complete. The reasons of failures are in `progress`,
// that of the end of the process in `record`.
int run_threads(const LaunchArgs& args, const RankFunction& rank_function, Progress& progress, LoaderRecord& record,
                uint64_t run_id);

}  // namespace ddhost
