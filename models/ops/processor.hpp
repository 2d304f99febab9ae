// SPDX-License-Identifier: Apache-2.0
//
// ops/processor.hpp: the properties of this machine's processor that the choice of a library depends on.
#pragma once

#include <string>

namespace ops {

struct Processor {
  std::string vendor;  // "GenuineIntel", "AuthenticAMD"; "" if unknown
  bool x86 = false, avx512 = false, bf16 = false;
  [[nodiscard]] std::string text() const;  // "GenuineIntel with AVX-512 and bf16"
};
const Processor& this_processor();

}  // namespace ops
