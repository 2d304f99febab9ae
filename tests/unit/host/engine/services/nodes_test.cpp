// SPDX-License-Identifier: Apache-2.0
//
// Which ranks are on which node.
#include "engine/services/nodes.hpp"

#include <catch2/catch.hpp>

using ddhost::Nodes;

TEST_CASE("nodes of three ranks and one rank have no common size", "[nodes]") {
  const Nodes nodes(std::vector<int32_t>{3, 1});
  CHECK(nodes.count() == 2);
  CHECK(nodes.world_size() == 4);
  CHECK(nodes.ranks_per_node() == 0);
  CHECK(nodes.node_of() == std::vector<int32_t>{0, 0, 0, 1});
  CHECK(nodes.local_rank(2) == 2);
  CHECK(nodes.local_rank(3) == 0);
  CHECK(nodes.sizes() == std::vector<int32_t>{3, 1});
}

TEST_CASE("equal nodes have a size, and one node has none unless it was given", "[nodes]") {
  CHECK(Nodes(6, 2).count() == 3);
  CHECK(Nodes(6, 2).ranks_per_node() == 2);
  CHECK(Nodes(6, 2).node(3) == 1);
  CHECK(Nodes(6, 0).count() == 1);
  CHECK(Nodes(6, 0).ranks_per_node() == 0);
  CHECK(Nodes(6, 6).ranks_per_node() == 6);
  CHECK(Nodes(std::vector<int32_t>{6}).ranks_per_node() == 0);
}
