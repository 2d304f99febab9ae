// SPDX-License-Identifier: Apache-2.0
#include "ddh/sdk/tier/checksum.hpp"

#define XXH_INLINE_ALL  // a plugin needs no library
#include <xxhash.h>

namespace ddh {
inline namespace v1 DDH_HIDDEN {

uint64_t checksum64(const void* data, uint64_t bytes) { return XXH3_64bits(data, bytes); }

}  // namespace DDH_HIDDEN
}  // namespace ddh
