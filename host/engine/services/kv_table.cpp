// SPDX-License-Identifier: Apache-2.0
//
// ddh/service/kv.h: the key-value store; the keys of a plugin begin with its name.
#include <chrono>

#include "engine/services/tables.hpp"

namespace ddhost::detail {

using ddh::guard;

const ddh_kv_api kKvTable = {
    sizeof(ddh_kv_api),
    0,
    [](void* h, const char* key, const void* value, uint64_t bytes, ddh_err* err) noexcept {
      return guard(err, [&] {
        services_of(h).seat.kv.set(seat_of(h).name + "/" + key, std::string(static_cast<const char*>(value), bytes));
      });
    },
    [](void* h, const char* key, void* value, uint64_t* bytes, uint32_t timeout_ms, ddh_err* err) noexcept {
      return guard(err, [&] {
        const std::string got =
            services_of(h).seat.kv.get(seat_of(h).name + "/" + key, std::chrono::milliseconds(timeout_ms));
        const uint64_t capacity = std::exchange(*bytes, got.size());
        if (got.size() > capacity)
          ddh::fail(DDH_OUT_OF_RANGE, "the value of '", key, "' has ", got.size(), " bytes, there is room for ",
                    capacity);
        got.copy(static_cast<char*>(value), got.size());
      });
    },
};

}  // namespace ddhost::detail
