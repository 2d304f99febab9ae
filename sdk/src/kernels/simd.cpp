// SPDX-License-Identifier: Apache-2.0
//
// The width of this processor's vectors.
#include "ddh/sdk/kernels/simd.hpp"

#include <cstdlib>
#include <cstring>

namespace ddh {
inline namespace v1 DDH_HIDDEN {

SimdLevel simd_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const char* const limit = std::getenv("DDHOST_CPU");  // of the user (plugins/device/cpu/instruction_set.hpp)
  const bool narrow = limit != nullptr && std::strcmp(limit, "avx2") == 0;
  if (!narrow && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return SimdLevel::avx512;
  if (__builtin_cpu_supports("avx2")) return SimdLevel::avx2;
#endif
  return SimdLevel::base;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
