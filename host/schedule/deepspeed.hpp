// SPDX-License-Identifier: Apache-2.0
//
// schedule/deepspeed.hpp: DeepSpeed's schedulers (deepspeed/runtime/lr_schedules.py), number for number. They count
// updates: a skipped step leaves the rate where it was. DeepSpeed moves its scheduler after the optimizer, and the first move
// leads to k = 0, so with `done` updates the rate is that of k = done - 1, and the first two updates run at the lowest rate.
//
//   warmup, n = max(2, warmup_steps): min_lr + (max_lr - min_lr) g,  g(k < n) = log(k + 1) / log(n) or k / n,  then 1
//   warmup_decay, T = decay_steps:    from n on  g = max(0, (T - k) / max(1, T - n))
//   warmup_cosine:                    lr times a ratio; from n on a cosine down to min_lr_ratio
//   cycle (OneCycle):                 min_lr up to max_lr and back, then min_lr / (1 + rate i)
#pragma once

#include "schedule/curve.hpp"
#include "schedule/options.hpp"

namespace ddhost {

Curve warmup_curve(const ScheduleOptions& options);
Curve warmup_decay_curve(const ScheduleOptions& options);
Curve warmup_cosine_curve(const ScheduleOptions& options);
Curve cycle_curve(const ScheduleOptions& options);

}  // namespace ddhost
