// SPDX-License-Identifier: Apache-2.0
#include "processor.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstdlib>
#include <string_view>

#include "ddh/sdk/plugin.hpp"

namespace ops {
namespace {

Processor read_processor() {
  Processor p;
#if defined(__x86_64__)
  p.x86 = true;
  __builtin_cpu_init();
  const char* const wish = std::getenv("DDHOST_CPU");  // a limit of the user: avx2 or avx512
  const std::string_view limit = wish == nullptr ? "" : wish;
  p.avx512 = limit != "avx2" && __builtin_cpu_supports("avx512f") != 0;
  p.bf16 = limit.empty() && __builtin_cpu_supports("avx512bf16") != 0;
  unsigned int most = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &most, &b, &c, &d) != 0) {
    for (const unsigned int part : {b, d, c}) p.vendor.append(reinterpret_cast<const char*>(&part), sizeof part);
  }
#endif
  return p;
}

}  // namespace

std::string Processor::text() const {
  return ddh::str(vendor.empty() ? "an unknown processor" : vendor, avx512 ? " with AVX-512" : " without AVX-512",
                  bf16 ? " and bf16" : "");
}

const Processor& this_processor() {
  static const Processor processor = read_processor();
  return processor;
}

}  // namespace ops
