// SPDX-License-Identifier: Apache-2.0
#include "ddh/sdk/comm_groups.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace ddh {
inline namespace v1 DDH_HIDDEN {

void GroupPlaces::init(const ddh_comm_init& args, uint32_t timeout_ms) {
  rank_ = args.rank, world_size_ = args.world_size;
  run_id_ = args.run_id;
  timeout_ms_ = timeout_ms;
}

GroupPlace GroupPlaces::world() {
  std::vector<int32_t> all(static_cast<size_t>(world_size_));
  std::iota(all.begin(), all.end(), 0);
  return place("world", std::move(all));
}

GroupPlace GroupPlaces::place(std::string name, std::vector<int32_t> ranks) {
  const auto me = std::find(ranks.begin(), ranks.end(), rank_);
  const auto not_ascending = std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>());
  if (me == ranks.end() || not_ascending != ranks.end() || ranks.front() < 0 || ranks.back() >= world_size_)
    fail(DDH_INVALID_ARGUMENT, "group '", name, "' needs ascending ranks below ", world_size_, " with rank ", rank_,
         " among them");
  // Groups of other members, and the next group of the same, have other keys.
  std::string key = str(name, ' ', run_id_, " of");
  for (const int32_t rank : ranks) key += str(' ', rank);
  key += str(", ", made_[key]++);
  const auto rank = static_cast<int32_t>(me - ranks.begin());
  return {std::move(name), std::move(key), std::move(ranks), rank};
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
