// SPDX-License-Identifier: Apache-2.0
//
// Which rank is named as slow, and for what.
#include "engine/record/slow_ranks.hpp"

#include <catch2/catch.hpp>
#include <vector>

using namespace ddhost;

namespace {

// Compute, data, other: ms of a step outside of collectives.
using Ranks = std::vector<SectionTimes>;

}  // namespace

TEST_CASE("no rank is named where all are about equally fast") {
  CHECK_FALSE(slowest_rank(Ranks{{100, 1, 5}, {110, 1, 4}, {119, 1, 3}}));
  CHECK_FALSE(slowest_rank(Ranks{{100, 5, 1}}));
}

TEST_CASE("a rank that computes longer than 1.2 times the median is named, also if there are only two") {
  CHECK(slowest_rank(Ranks{{20, 1, 2}, {21, 1, 2}, {31, 1, 1}, {20, 1, 2}}) ==
        SlowRank{2, StepSection::compute, 31, 20});
  CHECK(slowest_rank(Ranks{{30, 0, 1}, {20, 0, 1}}) == SlowRank{0, StepSection::compute, 30, 20});
}

TEST_CASE("the section is the one in which the rank loses most") {
  CHECK(slowest_rank(Ranks{{20, 1, 3}, {21, 14, 3}, {20, 1, 3}}) == SlowRank{1, StepSection::data, 14, 1});
  CHECK(slowest_rank(Ranks{{20, 1, 9}, {20, 1, 1}}) == SlowRank{0, StepSection::other, 9, 1});
}

TEST_CASE("a rank that only waits for another is not named, the other one is") {
  // Rank 0 writes files for 5 ms, and rank 1 waits for it in a collective, which no section has.
  const auto slow = slowest_rank(Ranks{{20, 0, 6}, {20, 0, 1}});
  REQUIRE(slow);
  CHECK(slow->rank == 0);
  CHECK_FALSE(slowest_rank(Ranks{{20, 5, 0}, {20, 5, 0}, {15, 5, 0}}));
}

TEST_CASE("a difference below two milliseconds is noise") {
  CHECK_FALSE(slowest_rank(Ranks{{0.2, 0, 0}, {1.9, 0, 0}, {0.2, 0, 0}}));
}
