// SPDX-License-Identifier: Apache-2.0
//
// Tables of ddh.stream and ddh.copy on the built-in CPU device: every stream runs inline.
#include <cstring>

#include "services/interfaces.hpp"

namespace ddhost::detail {
// Inline work is done when its call returns, so handles need only differ from NULL.

const ddh_stream kStreamTable = {
    sizeof(ddh_stream),
    0,
    [](void* h, const char*, ddh_stream_t** out, ddh_err*) noexcept -> ddh_rc {
      *out = reinterpret_cast<ddh_stream_t*>(h);
      return DDH_OK;
    },
    [](void*, ddh_stream_t*) noexcept {},
    [](void* h, ddh_event_t** out, ddh_err*) noexcept -> ddh_rc {
      *out = reinterpret_cast<ddh_event_t*>(h);
      return DDH_OK;
    },
    [](void*, ddh_event_t*) noexcept {},
    [](void*, ddh_event_t*, ddh_stream_t*, ddh_err*) noexcept -> ddh_rc { return DDH_OK; },
    [](void*, ddh_stream_t*, ddh_event_t*, ddh_err*) noexcept -> ddh_rc { return DDH_OK; },
    [](void*, ddh_stream_t*, ddh_err*) noexcept -> ddh_rc { return DDH_OK; },
    [](void*, ddh_stream_t*) noexcept -> void* { return nullptr; },
};

const ddh_copy kCopyTable = {
    sizeof(ddh_copy),
    0,
    [](void*, void* dst, int32_t, const void* src, int32_t, uint64_t bytes, ddh_stream_t*,
       ddh_err*) noexcept -> ddh_rc {
      std::memcpy(dst, src, bytes);
      return DDH_OK;
    },
};

}  // namespace ddhost::detail
