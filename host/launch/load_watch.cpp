// SPDX-License-Identifier: Apache-2.0
#include "launch/load_watch.hpp"

#include "ddh/sdk/plugin.hpp"

namespace ddhost {

Watchdog::News LoadWatch::look(Watchdog::Clock::time_point now) {
  Watchdog::News news;
  if (limits_.notice.count() == 0) return news;
  if (const uint32_t current = record_.current_load(); current != load_) {
    load_ = current;
    since_ = now;
    notice_ = limits_.notice * kPreparationFactor;
  }
  if (load_ == 0) return news;
  const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - since_);
  const std::string sentence = ddh::str(record_.loading(), " has taken ", seconds_text(age), " so far");
  if (limits_.abort.count() > 0 && age >= limits_.abort) {
    news.end = sentence + abort_reason(limits_);
  } else if (age >= notice_) {
    news.notices.push_back(sentence);
    while (notice_ <= age) notice_ *= 2;
  }
  return news;
}

}  // namespace ddhost
