// SPDX-License-Identifier: Apache-2.0
//
// Which rank is named as slow, and for what.
#include "engine/record/slow_ranks.hpp"

#include <catch2/catch.hpp>
#include <vector>

using namespace ddhost;

namespace {

// Compute, communication, data: ms of a step.
using Ranks = std::vector<SectionTimes>;

}  // namespace

TEST_CASE("no rank is named where all are about equally fast") {
  CHECK_FALSE(slowest_rank(Ranks{{100, 5, 1}, {110, 4, 1}, {119, 3, 1}}));
  CHECK_FALSE(slowest_rank(Ranks{{100, 5, 1}}));
}

TEST_CASE("a rank that computes longer than 1.2 times the median is named, also if there are only two") {
  CHECK(slowest_rank(Ranks{{20, 12, 1}, {21, 11, 1}, {31, 1, 1}, {20, 12, 1}}) ==
        SlowRank{2, StepSection::compute, 31, 20});
  CHECK(slowest_rank(Ranks{{30, 0, 1}, {20, 10, 1}}) == SlowRank{0, StepSection::compute, 30, 20});
}

TEST_CASE("the section is the one in which the rank loses most") {
  CHECK(slowest_rank(Ranks{{20, 13, 1}, {21, 1, 14}, {20, 13, 1}}) == SlowRank{1, StepSection::data, 14, 1});
}

TEST_CASE("a rank whose whole step takes longer is named for communication") {
  CHECK(slowest_rank(Ranks{{20, 5, 0}, {20, 15, 0}, {20, 5, 0}}) == SlowRank{1, StepSection::communication, 15, 5});
}

TEST_CASE("ranks that wait for others are not named") {
  CHECK_FALSE(slowest_rank(Ranks{{20, 5, 0}, {15, 10, 0}, {15, 10, 0}, {20, 5, 0}, {20, 5, 0}}));
}

TEST_CASE("a difference below one millisecond is noise") {
  CHECK_FALSE(slowest_rank(Ranks{{0.2, 0.5, 0}, {0.9, 0, 0}, {0.2, 0.5, 0}}));
}
