// SPDX-License-Identifier: Apache-2.0
//
// schedule/decay.hpp: the plain family. A linear warm-up, lr (done + 1) / (warmup_steps + 1), as in nanoGPT; then
//   constant       lr
//   linear, cosine down to min_lr_ratio lr at decay_steps
//   wsd            lr, and down only over the last decay_ratio of decay_steps (warm-up, stable, decay)
//   inverse_sqrt   lr sqrt(t / (done - warmup_steps + t)), t = timescale; it never ends
#pragma once

#include "schedule/curve.hpp"
#include "schedule/options.hpp"

namespace ddhost {

Curve constant_curve(const ScheduleOptions& options);
Curve linear_curve(const ScheduleOptions& options);
Curve cosine_curve(const ScheduleOptions& options);
Curve wsd_curve(const ScheduleOptions& options);
Curve inverse_sqrt_curve(const ScheduleOptions& options);

// Error when the user gave decay_steps that end before warmup_steps. Where train.steps stands in for them, a short run
// just ends in its warm-up.
void check_decay_follows_warmup(const ScheduleOptions& options);

}  // namespace ddhost
