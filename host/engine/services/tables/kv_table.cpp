// SPDX-License-Identifier: Apache-2.0
//
// ddh/service/kv.h: the key-value store.
#include <chrono>

#include "engine/services/tables/tables.hpp"

namespace ddhost::detail {

using ddh::guard;

namespace {

// A plugin's keys begin with its name.
std::string key_of(void* h, const char* key) {
  seat_of(h).note_ranks();
  return seat_of(h).name + "/" + not_null(key, "the key");
}

}  // namespace

const ddh_kv_api kKvTable = {
    sizeof(ddh_kv_api),
    0,
    [](void* h, const char* key, const void* value, uint64_t bytes, ddh_err* err) noexcept {
      return guard(err, [&] {
        const auto* const first = static_cast<const char*>(bytes == 0 ? "" : not_null(value, "the value"));
        services_of(h).seat.kv.set(key_of(h, key), std::string(first, bytes));
      });
    },
    [](void* h, const char* key, void* value, uint64_t* bytes, uint32_t timeout_ms, ddh_err* err) noexcept {
      return guard(err, [&] {
        const std::string got = services_of(h).seat.kv.get(key_of(h, key), std::chrono::milliseconds(timeout_ms));
        const uint64_t capacity = std::exchange(*not_null(bytes, "bytes"), got.size());
        if (got.size() > capacity)
          ddh::fail(DDH_OUT_OF_RANGE, "the value of '", key, "' has ", got.size(), " bytes, there is room for ",
                    capacity);
        if (!got.empty()) got.copy(static_cast<char*>(not_null(value, "the value")), got.size());
      });
    },
    [](void* h, const char* key, int64_t delta, int64_t* value, ddh_err* err) noexcept {
      return guard(err, [&] { *not_null(value, "the value") = services_of(h).seat.kv.add(key_of(h, key), delta); });
    },
    [](void* h, const char* key, ddh_err* err) noexcept {
      return guard(err, [&] { services_of(h).seat.kv.erase(key_of(h, key)); });
    },
};

}  // namespace ddhost::detail
