// SPDX-License-Identifier: Apache-2.0
#include "plan/load_guard.hpp"

namespace ddhost {
namespace {

std::chrono::milliseconds as_time(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

}  // namespace

WatchdogLimits watchdog_limits(const Config& config) {
  return {as_time(config.get<double>("run.watchdog")), as_time(config.get<double>("run.watchdog_abort"))};
}

std::chrono::milliseconds stop_grace(const Config& config) { return as_time(config.get<double>("launch.grace")); }

LoadGuard::LoadGuard(LoaderRecord* record, const std::string& what) : record_(record) {
  if (record_ != nullptr) record_->begin_load(what);
}

LoadGuard::~LoadGuard() {
  if (record_ != nullptr) record_->end_load();
}

}  // namespace ddhost
