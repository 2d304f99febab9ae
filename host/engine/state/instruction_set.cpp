// SPDX-License-Identifier: Apache-2.0
#include "engine/state/instruction_set.hpp"

#include <array>
#include <cstdlib>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

// Of LibTorch, oneDNN and MKL.
constexpr std::array<const char*, 3> kLibraries = {"ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA",
                                                   "MKL_ENABLE_INSTRUCTIONS"};
struct Limit {
  std::string_view name;
  const char* text;
  std::array<const char*, 3> values;  // of kLibraries
};
constexpr std::array<Limit, 2> kLimits = {
    {{"avx2", "AVX2", {"avx2", "AVX2", "AVX2"}}, {"avx512", "AVX-512", {"avx512", "AVX512_CORE_VNNI", "AVX512"}}}};

const char* wish() {
  const char* const text = std::getenv("DDHOST_CPU");
  return text == nullptr ? "" : text;
}

const Limit* wished_limit() {
  for (const Limit& limit : kLimits)
    if (limit.name == wish()) return &limit;
  return nullptr;
}

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

}  // namespace

void limit_instruction_set() {
  if (*wish() == '\0') return;
  const Limit* const limit = wished_limit();
  if (limit == nullptr)
    ddh::fail(DDH_INVALID_ARGUMENT, "DDHOST_CPU is '", wish(), "'; give avx2 or avx512, or unset it");
  if (!has(limit->name))
    ddh::fail(DDH_FAILED_PRECONDITION, "DDHOST_CPU is ", limit->name, ", but this processor has no ", limit->text,
              "; unset it, or use another machine");
  for (size_t i = 0; i < kLibraries.size(); ++i) ::setenv(kLibraries[i], limit->values[i], /*overwrite=*/0);
}

std::string instruction_set() {
  const Limit* const limit = wished_limit();
  std::string out = vendor();
  if (limit != nullptr)
    out += std::string(" ") + limit->text;
  else if (has("avx512"))
    out += has("bf16") ? " AVX-512 bf16" : " AVX-512";
  else if (has("avx2"))
    out += " AVX2";
  for (size_t i = 0; i < kLibraries.size(); ++i) {
    const char* const value = std::getenv(kLibraries[i]);
    if (value != nullptr && (limit == nullptr || std::string_view(value) != limit->values[i]))
      out += std::string(" ") + kLibraries[i] + "=" + value;
  }
  return out;
}

}  // namespace ddhost
