// SPDX-License-Identifier: Apache-2.0
//
// launch/load_watch.hpp: the watchdog of loading: names a library whose own code takes long when it is loaded.
#pragma once

#include "launch/loader_record.hpp"
#include "launch/watchdog.hpp"

namespace ddhost {

class LoadWatch {
 public:
  // `record` outlives the object.
  LoadWatch(const LoaderRecord& record, WatchdogLimits limits) : record_(record), limits_(limits) {}

  // The launcher calls it as often as the watchdog of the ranks.
  [[nodiscard]] Watchdog::News look(Watchdog::Clock::time_point now);

 private:
  const LoaderRecord& record_;
  const WatchdogLimits limits_;
  uint32_t load_ = 0;
  Watchdog::Clock::time_point since_;
  std::chrono::milliseconds notice_{0};  // the next one is due at this age
};

}  // namespace ddhost
