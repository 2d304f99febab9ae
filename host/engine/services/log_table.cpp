// SPDX-License-Identifier: Apache-2.0
//
// ddh/service/log.h: lines of plugins in the log of the rank.
#include <spdlog/spdlog.h>

#include "engine/services/tables.hpp"

namespace ddhost::detail {

const ddh_log_api kLogTable = {sizeof(ddh_log_api), 0, [](void* h, int32_t level, const char* text) noexcept {
                                 const auto to = level <= DDH_LOG_DEBUG  ? spdlog::level::debug
                                                 : level == DDH_LOG_INFO ? spdlog::level::info
                                                 : level == DDH_LOG_WARN ? spdlog::level::warn
                                                                         : spdlog::level::err;
                                 services_of(h).log->log(to, "{}: {}", seat_of(h).name,
                                                         text == nullptr ? "(no text: NULL)" : text);
                               }};

}  // namespace ddhost::detail
