// SPDX-License-Identifier: Apache-2.0
//
// Events and times as text.
#pragma once

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>

#include "ddh/kind/monitor.h"

// "checkpoint"; "" for a kind that is not known, which a monitor leaves out.
inline std::string event_name(int32_t kind) {
  switch (kind) {
    case DDH_EVENT_RESUMED:
      return "resumed";
    case DDH_EVENT_CHECKPOINT:
      return "checkpoint";
    case DDH_EVENT_FAILED:
      return "failed";
    default:
      return "";
  }
}

// "2026-11-26T13:01:50Z", of now.
inline std::string utc_text() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  std::array<char, 32> text{};
  if (::gmtime_r(&now, &parts) != nullptr) std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}
