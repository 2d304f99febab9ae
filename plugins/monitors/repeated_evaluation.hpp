// SPDX-License-Identifier: Apache-2.0
//
// repeated_evaluation.hpp: a run that was killed while it repeated an evaluation, after its row and before the checkpoint that
// counts it, does the evaluation once more.
#pragma once

#include "ddh/kind/monitor.h"

// Of the first row of a run that was resumed after `resumed_after`: whether its evaluation may already be recorded.
inline bool repeats_evaluation(const ddh_row& row, int64_t resumed_after) {
  return row.kind == DDH_ROW_EVAL && row.step == resumed_after;
}
