// SPDX-License-Identifier: Apache-2.0
//
// base/step_extras.hpp: work of a step that only keeps a promise. A build with the CMake option DDHOST_LEAVES_OUT can leave
// it out, so that benchmarks/promises.py can measure what it costs. All other builds do all of it.
#pragma once

#include <cstdint>

namespace ddhost {

enum class StepExtra : uint8_t {
  norm,     // the norm of gradients is summed without rounding; else in fp32, as fast as that goes
  checks,   // views, ranges, counted gradients and updates, finite parameters, equal replicas
  metrics,  // rank 0 records the step: row of metrics, warnings, count of steps, lines of progress
};

#ifdef DDHOST_LEAVES_OUT
// Whether the step that runs includes it. The variable DDHOST_LEAVE_OUT names what a run leaves out, with commas, in one of two
// blocks of 8 steps. All ranks leave it out in the same steps. Error: an unknown name.
[[nodiscard]] bool step_includes(StepExtra extra);
// A step begins. Appends a line to the file that DDHOST_STEP_TIMES names, with the process number behind it: the step, the time
// in nanoseconds, and 1 if the step leaves out what the run names.
void record_step_begin(int64_t step);
#else
constexpr bool step_includes(StepExtra /*extra*/) { return true; }
constexpr void record_step_begin(int64_t /*step*/) {}
#endif

}  // namespace ddhost
