// SPDX-License-Identifier: Apache-2.0
//
// How the bytes of collectives are counted.
#include "ddh/sdk/sent_bytes.hpp"

#include <catch2/catch.hpp>

using ddh::GroupRanks;
using ddh::SentBytes;

namespace {

const std::vector<int32_t> kPairs = {0, 0, 1, 1, 2, 2}, kAlone = {0, 1, 2};  // the node of each rank

}  // namespace

TEST_CASE("a piece counts once for the rank that gets it, and also as sent between nodes if that is on another one") {
  const GroupRanks six =
      GroupRanks::strided(0, 1, 6, 1, kPairs.data());  // nodes {0, 1}, {2, 3}, {4, 5}; this is rank 1
  const std::vector<uint64_t> numel = {10, 20, 30, 40, 50, 60};
  CHECK(six.pieces(numel, 4) == SentBytes{(210 - 20) * 4, (210 - 10 - 20) * 4});
  CHECK(six.to_each(7) == SentBytes{7 * 5, 7 * 4});
  CHECK(six.to_one(0, 7) == SentBytes{7, 0});
  CHECK(six.to_one(1, 7) == SentBytes{0, 0});
  CHECK(six.to_one(5, 7) == SentBytes{7, 7});
}

TEST_CASE("a sum for all is a reduce-scatter of even pieces and an all-gather") {
  const GroupRanks three = GroupRanks::strided(0, 1, 3, 0, nullptr);
  CHECK(three.all_reduce(9, 4) == SentBytes{2 * 6 * 4, 0});
  CHECK(three.all_reduce(10, 4) == SentBytes{(6 + 2 * 4) * 4, 0});  // the first of the pieces 4, 3, 3
  const GroupRanks last = GroupRanks::strided(0, 1, 3, 2, kAlone.data());
  CHECK(last.all_reduce(10, 4) == SentBytes{(7 + 2 * 3) * 4, (7 + 2 * 3) * 4});
}

TEST_CASE("members of a group that are a node apart are on other nodes, and a rank alone sends nothing") {
  const GroupRanks replicas = GroupRanks::strided(1, 2, 3, 0, kPairs.data());  // ranks 1, 3, 5
  CHECK(replicas.to_each(8) == SentBytes{16, 16});
  const std::vector<int32_t> three_and_one = {0, 0, 0, 1};
  CHECK(GroupRanks::strided(0, 1, 4, 2, three_and_one.data()).to_each(8) == SentBytes{24, 8});
  CHECK(GroupRanks().to_each(8) == SentBytes{});
  CHECK(GroupRanks().all_reduce(8, 4) == SentBytes{});
  CHECK(GroupRanks::strided(3, 1, 1, 0, kPairs.data()).all_reduce(8, 4) == SentBytes{});
}
