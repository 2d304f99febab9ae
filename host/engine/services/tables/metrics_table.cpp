// SPDX-License-Identifier: Apache-2.0
//
// ddh/service/metrics.h: counters and spans of time.
#include "engine/services/tables/tables.hpp"

namespace ddhost::detail {

using ddh::guard;

const ddh_metrics_api kMetricsTable = {
    sizeof(ddh_metrics_api),
    0,
    [](void* h, const char* name, uint64_t add) noexcept {
      guard(nullptr, [&] { services_of(h).clock.count(not_null(name, "the counter's name"), add); });
    },
    [](void* h, int32_t kind, const char* name) noexcept {
      guard(nullptr, [&] { services_of(h).clock.begin(kind, SpanTopic(nullptr, nullptr, name)); });
    },
    [](void* h) noexcept { guard(nullptr, [&] { services_of(h).clock.end(); }); },
};

}  // namespace ddhost::detail
