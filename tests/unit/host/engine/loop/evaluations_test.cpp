// SPDX-License-Identifier: Apache-2.0
//
// The distribution of an evaluation's micro-batches: each is counted once at every world size, and all ranks make the
// same number of passes.
#include "engine/loop/evaluations.hpp"

#include <catch2/catch.hpp>
#include <map>

using namespace ddhost;

TEST_CASE("each micro-batch of an evaluation counts once, on the rank of its place", "[evaluation]") {
  for (const uint64_t count : {1, 5, 6, 24}) {
    for (const uint64_t world : {1, 2, 3, 4, 7, 12}) {
      INFO(count << " micro-batches on " << world << " ranks");
      const EvalTurns turns{count, world};
      std::map<uint64_t, int> counted;
      for (uint64_t pass = 0; pass < turns.passes(); ++pass) {
        for (uint64_t rank = 0; rank < world; ++rank) {
          const EvalTurns::Turn turn = turns.turn(pass, rank);
          CHECK(turn.micro_batch < count);  // a rank whose turn has none left runs one that exists
          if (turn.counts) {
            CHECK(turn.micro_batch == pass * world + rank);
            ++counted[turn.micro_batch];
          }
        }
      }
      CHECK(counted.size() == count);
      for (const auto& [micro_batch, times] : counted) CHECK(times == 1);
      CHECK(turns.passes() * world < count + world);  // no pass of which nothing counts
    }
  }
}
