// SPDX-License-Identifier: Apache-2.0
//
// Cases for skipped.sh, which runs them one at a time: this program is not a test by itself.
#include <catch2/catch.hpp>

#include "fixtures/harness/golden_data.hpp"

using namespace ddhost::test;

TEST_CASE("without its data") {
  if (!find_data("none/such.safetensors")) return;
  FAIL("the file exists");
}

TEST_CASE("with its data") { REQUIRE(find_data("shakespeare/input.txt")); }

TEST_CASE("four failures") {
  for (int i = 0; i < 4; ++i) CHECK(i < 0);
}
