// SPDX-License-Identifier: Apache-2.0
//
// plan/load_guard.hpp: a library's own code runs when it is loaded, before any rank exists. The guard notes this in the
// loader's record, so that the launcher can say which library hung or ended the loader.
#pragma once

#include <string>

#include "config/config.hpp"
#include "launch/loader_record.hpp"
#include "launch/watchdog.hpp"

namespace ddhost {

// run.watchdog and run.watchdog_abort.
WatchdogLimits watchdog_limits(const Config& config);
// An option in seconds.
std::chrono::milliseconds time_of(const Config& config, const char* key);

// During its lifetime `what` is under way: "loading strategy 'x'".
class LoadGuard {
 public:
  // Without a record nothing is noted.
  LoadGuard(LoaderRecord* record, const std::string& what);
  LoadGuard(const LoadGuard&) = delete;
  LoadGuard& operator=(const LoadGuard&) = delete;
  ~LoadGuard();

 private:
  LoaderRecord* const record_;
};

}  // namespace ddhost
