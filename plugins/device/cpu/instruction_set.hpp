// SPDX-License-Identifier: Apache-2.0
//
// cpu/instruction_set.hpp: which instructions a run may use. Libraries choose their kernels by them, and some kernels add in
// another order, so a checkpoint records them. A limit lowers them, so that runs on several machines can use the same ones.
//
//   avx2     nothing beyond AVX2
//   avx512   nothing beyond AVX-512: no bf16 instructions
#pragma once

#include <string>
#include <string_view>

namespace cpu {

// "GenuineIntel AVX-512 bf16": the vendor, because libraries choose by it too, and what is used under `limit` ("": all). Error:
// the limit has another value, or one beyond this processor.
std::string instruction_set(std::string_view limit);

}  // namespace cpu
