// SPDX-License-Identifier: Apache-2.0
//
// launch/rank_range.hpp: the ranks of a run that one launcher starts.
#pragma once

namespace ddhost {

struct RankRange {
  int first = 0, count = 0;
  [[nodiscard]] int end() const { return first + count; }
};

}  // namespace ddhost
