// SPDX-License-Identifier: Apache-2.0
//
// ddh/service/log.h: lines of plugins in the log of the rank.
#include <spdlog/spdlog.h>

#include "engine/services/tables/tables.hpp"

namespace ddhost::detail {
namespace {

void log_line(void* h, int32_t level, const char* text) noexcept {
  const auto to = level <= DDH_LOG_DEBUG  ? spdlog::level::debug
                  : level == DDH_LOG_INFO ? spdlog::level::info
                  : level == DDH_LOG_WARN ? spdlog::level::warn
                                          : spdlog::level::err;
  RankServices& services = services_of(h);
  std::string line = text == nullptr ? "(no text: NULL)" : text;
  if (to >= spdlog::level::warn) line = services.config.in_words_of_user(std::move(line));
  services.log->log(to, "{}: {}", seat_of(h).name, line);
}

}  // namespace

const ddh_log_api kLogTable = {sizeof(ddh_log_api), 0, log_line};

}  // namespace ddhost::detail
