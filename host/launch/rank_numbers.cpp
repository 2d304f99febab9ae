// SPDX-License-Identifier: Apache-2.0
#include "launch/rank_numbers.hpp"

#include "base/clock.hpp"
#include "engine/services/memory/memory.hpp"

namespace ddhost {

Json numbers_of_ranks(const Progress& progress, RankRange ranks) {
  Json out = Json::array();
  for (int rank = ranks.first; rank < ranks.end(); ++rank) {
    const RankNumbers numbers = progress.numbers(rank);
    const auto planned = progress.planned(rank);
    Json memory, time, plan;
    for (size_t tag = 0; tag < kTagCount; ++tag) {
      memory[kTagNames[tag]] = {{"peak", numbers.peak_bytes[tag]}};
      if (planned[tag] > 0) plan[kTagNames[tag]] = planned[tag];
    }
    for (size_t kind = 0; kind < kSpanKinds; ++kind) time[kSpanNames[kind]] = numbers.time_ms[kind];
    out.push_back({{"rank", rank}, {"memory_bytes", memory}, {"plan_bytes", plan}, {"time_ms", time}});
  }
  return out;
}

}  // namespace ddhost
