// SPDX-License-Identifier: Apache-2.0
//
// launch/rank_numbers.hpp: the memory and the times of ranks as the launcher sees them while they train, and after they have
// failed: an array of objects like those of the ranks in the summary that a run writes at its end.
#pragma once

#include "base/json.hpp"
#include "launch/progress.hpp"
#include "launch/rank_range.hpp"

namespace ddhost {

Json numbers_of_ranks(const Progress& progress, RankRange ranks);

}  // namespace ddhost
