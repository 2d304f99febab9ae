// SPDX-License-Identifier: Apache-2.0
//
// engine/numerics/peak_flops.hpp: the fastest arithmetic of one core, which the summary compares a model's speed with.
#pragma once

namespace ddhost {

// fp32 operations per second of this core with the widest fused multiply-adds that it has (two operations each). Takes a few
// milliseconds.
double measured_peak_flops_per_s();

}  // namespace ddhost
