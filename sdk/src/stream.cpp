// SPDX-License-Identifier: Apache-2.0
//
// Work of the host in the order of a stream.
#include "ddh/sdk/stream.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

Accesses& Accesses::add(const void* data, uint64_t bytes, uint32_t mode) {
  if (bytes > 0) list_.push_back({data, bytes, mode, 0});
  return *this;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
