// SPDX-License-Identifier: Apache-2.0
//
// engine/state/instruction_set.hpp: which instructions a run may use. Libraries choose their kernels by them, and some
// kernels add in another order, so a checkpoint records them. The environment variable DDHOST_CPU lowers them, so that runs
// on several machines can use the same ones.
//
//   DDHOST_CPU=avx2     nothing beyond AVX2
//   DDHOST_CPU=avx512   nothing beyond AVX-512: no bf16 instructions
#pragma once

#include <string>

namespace ddhost {

// Throws if DDHOST_CPU has another value, or one beyond this processor. Else lowers the libraries that models use to it, by
// their own environment variables, except for those that are set. Must be called before they are loaded.
void limit_instruction_set();

// "GenuineIntel AVX-512 bf16": the vendor, because MKL chooses by it too, and what is used. Variables that limit a single
// library are added.
std::string instruction_set();

}  // namespace ddhost
