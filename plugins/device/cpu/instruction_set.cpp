// SPDX-License-Identifier: Apache-2.0
#include "instruction_set.hpp"

#include <array>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "ddh/sdk/plugin.hpp"

namespace cpu {
namespace {

struct Limit {
  std::string_view name;
  const char* text;
};
constexpr std::array<Limit, 2> kLimits = {{{"avx2", "AVX2"}, {"avx512", "AVX-512"}}};

bool has(std::string_view name) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (name == "avx2") return __builtin_cpu_supports("avx2") != 0;
  if (name == "avx512") return __builtin_cpu_supports("avx512f") != 0;
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  static_cast<void>(name);
  return false;
#endif
}

std::string vendor() {
  std::string out;
#if defined(__x86_64__)
  unsigned int most = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &most, &b, &c, &d) != 0)
    for (const unsigned int part : {b, d, c}) out.append(reinterpret_cast<const char*>(&part), sizeof part);
#endif
  return out.empty() ? "other" : out;
}

std::string limited_to(std::string_view wish) {
  for (const Limit& limit : kLimits) {
    if (limit.name != wish) continue;
    if (has(wish)) return ddh::str(' ', limit.text);
    ddh::fail(DDH_FAILED_PRECONDITION, "DDHOST_CPU is ", wish, ", but this processor has no ", limit.text,
              "; unset it, or use another machine");
  }
  ddh::fail(DDH_INVALID_ARGUMENT, "DDHOST_CPU is '", wish, "'; give avx2 or avx512, or unset it");
}

}  // namespace

std::string instruction_set(std::string_view limit) {
  if (!limit.empty()) return vendor() + limited_to(limit);
  if (has("avx512")) return vendor() + (has("bf16") ? " AVX-512 bf16" : " AVX-512");
  return vendor() + (has("avx2") ? " AVX2" : "");
}

}  // namespace cpu
