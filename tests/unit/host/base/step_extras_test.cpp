// SPDX-License-Identifier: Apache-2.0
//
// Which steps a build for benchmarks/promises.py leaves work out in. Compiled with DDHOST_LEAVES_OUT.
#include "base/step_extras.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>

#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost;

TEST_CASE("one of two blocks of 8 steps leaves out what the run names, and nothing else") {
  const test::TempFolder folder;
  const std::string path = folder.file("times");
  ::setenv("DDHOST_STEP_TIMES", path.c_str(), 1);
  ::setenv("DDHOST_LEAVE_OUT", "norm,metrics", 1);
  constexpr int64_t kSteps = 1600;
  int left_first = 0;
  bool first_of_pair = false, of_block = false;
  for (int64_t step = 0; step < kSteps; ++step) {
    record_step_begin(step);
    const bool includes = step_includes(StepExtra::norm);
    CHECK(step_includes(StepExtra::metrics) == includes);
    CHECK(step_includes(StepExtra::checks));
    if (step % 16 == 0) first_of_pair = includes, left_first += includes ? 0 : 1;
    if (step % 16 == 8) CHECK(includes != first_of_pair);
    if (step % 8 == 0) of_block = includes;
    CHECK(includes == of_block);
  }
  CHECK(left_first == 50);  // of 100 pairs
  std::ifstream times(path + "." + std::to_string(::getpid()));
  int64_t step = 0, nanoseconds = 0, last = 0, is_left_out = 0;
  for (int64_t expected = 0; expected < kSteps; ++expected) {
    REQUIRE(times >> step >> nanoseconds >> is_left_out);
    CHECK(step == expected);
    CHECK(nanoseconds >= last);
    last = nanoseconds;
  }
}
