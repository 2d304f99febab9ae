// SPDX-License-Identifier: Apache-2.0
//
// cli/load_guard.hpp: a library's own code runs when it is loaded, before any rank exists. The guard reports a failure
// of that code with the plugin's name.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "config/config.hpp"
#include "launch/exit_guard.hpp"
#include "launch/watchdog.hpp"

namespace ddhost {

// run.watchdog and run.watchdog_abort.
WatchdogLimits watchdog_limits(const Config& config);

// During its lifetime, exit(), a fatal signal and a hang are reported as failures of `what`: "loading strategy 'x'".
// Its thread watches the time and ends with the object.
class LoadGuard {
 public:
  LoadGuard(std::string what, WatchdogLimits limits);
  LoadGuard(const LoadGuard&) = delete;
  LoadGuard& operator=(const LoadGuard&) = delete;
  ~LoadGuard();

 private:
  static bool describe(const void* self, char* text, size_t capacity);
  void watch();

  const std::string what_;
  const WatchdogLimits limits_;
  const ExitGuard exit_guard_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false;
  std::thread thread_;
};

}  // namespace ddhost
