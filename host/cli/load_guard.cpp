// SPDX-License-Identifier: Apache-2.0
#include "cli/load_guard.hpp"

#include <unistd.h>

#include <cstring>

#include "ddh/sdk/plugin.hpp"
#include "launch/launch.hpp"

namespace ddhost {
namespace {

std::chrono::milliseconds as_time(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

}  // namespace

WatchdogLimits watchdog_limits(const Config& config) {
  return {as_time(config.get<double>("run.watchdog")), as_time(config.get<double>("run.watchdog_abort"))};
}

LoadGuard::LoadGuard(std::string what, WatchdogLimits limits)
    : what_(std::move(what)), limits_(limits), exit_guard_(&LoadGuard::describe, this) {
  if (limits_.notice.count() > 0) thread_ = std::thread([this] { watch(); });
}

LoadGuard::~LoadGuard() {
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
  }
  ended_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool LoadGuard::describe(const void* self, char* text, size_t capacity) {
  std::strncpy(text, static_cast<const LoadGuard*>(self)->what_.c_str(), capacity - 1);
  return true;
}

void LoadGuard::watch() {
  using SteadyClock = std::chrono::steady_clock;
  const SteadyClock::time_point begin = SteadyClock::now();
  std::chrono::milliseconds notice = limits_.notice * kPreparationFactor;
  std::unique_lock lock(mutex_);
  while (!has_ended_) {
    const bool may_end = limits_.abort.count() > 0;
    const SteadyClock::time_point next = begin + (may_end ? std::min(notice, limits_.abort) : notice);
    if (ended_.wait_until(lock, next, [this] { return has_ended_; })) return;
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(SteadyClock::now() - begin);
    const std::string sentence = ddh::str(what_, " has taken ", seconds_text(age), " so far");
    if (may_end && age >= limits_.abort) {
      print_sentence(sentence + abort_reason(limits_));
      ::_exit(1);  // not exit(): the library holds the loader's locks
    }
    print_sentence(sentence);
    notice *= 2;
  }
}

}  // namespace ddhost
