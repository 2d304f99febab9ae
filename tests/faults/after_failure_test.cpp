// SPDX-License-Identifier: Apache-2.0
//
// The rule of ddh/abi.h on failed calls: the host makes no further call into a strategy that has failed, but for destroy.
#include "fixtures/harness/bad_run.hpp"

using namespace ddhost::test;

TEST_CASE("nothing but destroy follows a failed call of a strategy", "[faults]") {
  const TempFolder folder;
  const std::string mark = folder.file("mark");
  REQUIRE(setenv("MISBEHAVE_MARK", mark.c_str(), 1) == 0);
  for (const char* call :
       {"attach", "plan", "materialize", "step_begin", "acquire", "release", "grads_ready", "step", "state"})
    for (const char* comm : {"loop", "shm"}) {
      const BadEnd end = run_bad(bad_strategy(call, "fails", {"--comm", comm, "checkpoint.every=2"}));
      INFO(call << " over " << comm);
      check_named(end, {"the tide is out"});
      CHECK_FALSE(std::filesystem::exists(mark));
      std::filesystem::remove(mark);
    }
  REQUIRE(unsetenv("MISBEHAVE_MARK") == 0);
}
