// SPDX-License-Identifier: Apache-2.0
//
// engine/services/memory/buffer_values.hpp: reads and writes values of a model's buffers, in host memory or in a block of the
// device. The caller has waited for the model's work.
#pragma once

#include <cstring>

#include "engine/services/memory/staging.hpp"

namespace ddhost {

inline uint64_t bytes_of(const ddh_buffer_desc& buffer) { return buffer.numel * ddh_dtype_bytes(buffer.dtype); }

// Values to read; valid until staging is used again.
inline const void* buffer_values(const ddh_buffer_desc& buffer, Staging& staging) {
  return staging.is_here(buffer.data) ? buffer.data : staging.readable(buffer.data, bytes_of(buffer), nullptr);
}

inline void set_buffer_values(const ddh_buffer_desc& buffer, const void* from, Staging& staging) {
  if (buffer.numel == 0) return;
  if (staging.is_here(buffer.data)) {
    std::memcpy(buffer.data, from, bytes_of(buffer));
    return;
  }
  char* const on_its_way = staging.begin(buffer.data, bytes_of(buffer));
  std::memcpy(on_its_way, from, bytes_of(buffer));
  staging.store(buffer.data, on_its_way, bytes_of(buffer), nullptr);
}

}  // namespace ddhost
