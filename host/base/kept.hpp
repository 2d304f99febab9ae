// SPDX-License-Identifier: Apache-2.0
//
// base/kept.hpp: parts of a step that only keep a promise, such as the checks of plugins. A build with the CMake option
// DDHOST_LEAVES_OUT can leave each of them out, to measure what it costs (benchmarks/promises.py). All other builds keep
// all of them, and none of this is compiled into them.
#pragma once

#include <cstdint>

namespace ddhost {

enum class Kept : uint8_t {
  order,    // gradients are summed in the order of ranks
  norm,     // the norm of gradients is summed without rounding
  checks,   // what the strategy gives and counts is checked in each step
  guards,   // guard bytes follow each block of memory
  metrics,  // each step writes its row of metrics
};

#ifdef DDHOST_LEAVES_OUT
// Whether the step that runs keeps it. The variable DDHOST_LEAVE_OUT names what a run leaves out, with commas: in one of two
// steps, drawn for each pair, or in all if DDHOST_LEAVE_OUT_ALWAYS is set. All ranks leave it out in the same steps.
[[nodiscard]] bool keeps(Kept part);
// A step begins. Appends a line to the file that DDHOST_STEP_TIMES names, with the process number behind it: the step, the time
// in nanoseconds, and 1 if the step leaves something out.
void note_step(int64_t step);
#else
constexpr bool keeps(Kept /*part*/) { return true; }
constexpr void note_step(int64_t /*step*/) {}
#endif

}  // namespace ddhost
