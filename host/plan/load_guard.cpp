// SPDX-License-Identifier: Apache-2.0
#include "plan/load_guard.hpp"

namespace ddhost {

std::chrono::milliseconds time_of(const Config& config, const char* key) {
  return std::chrono::milliseconds(static_cast<int64_t>(config.get<double>(key) * 1000));
}

WatchdogLimits watchdog_limits(const Config& config) {
  return {time_of(config, "run.watchdog"), time_of(config, "run.watchdog_abort")};
}

LoadGuard::LoadGuard(LoaderRecord* record, const std::string& what) : record_(record) {
  if (record_ != nullptr) record_->begin_load(what);
}

LoadGuard::~LoadGuard() {
  if (record_ != nullptr) record_->end_load();
}

}  // namespace ddhost
