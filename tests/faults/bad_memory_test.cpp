// SPDX-License-Identifier: Apache-2.0
//
// Memory and handles that a plugin releases wrongly or never, and writes beyond the end of its memory. All of these
// once ended with success.
#include "fixtures/harness/bad_run.hpp"

using namespace ddhost::test;

TEST_CASE("a wrong release of memory ends the run at the call", "[checked]") {
  const char* const comm = GENERATE("shm", "loop");
  const auto wrong = [&](const char* fault, const Words& words) {
    check_named(run_bad(bad_strategy("step", fault, {"--comm", comm, "strategy.step=2"})), words);
  };
  wrong("release_twice",
        {"strategy 'bad' called release of ddh.alloc a second time for 'a block' (4096 bytes of tag optim)",
         "fix the plugin"});
  wrong("release_inner",
        {"strategy 'bad' called release", "64 bytes after the beginning of 'a block' (4096 bytes of tag optim)"});
  wrong("release_unknown", {"strategy 'bad' called release", "with an address that allocate did not give"});
  check_named(run_bad(bad_strategy("step", "release_twice", {"--comm", comm, "strategy.rank=1"})),
              {"rank 1: strategy 'bad'", "a second time"});
}

TEST_CASE("memory that a plugin has not released when it is destroyed is named", "[checked]") {
  check_named(run_bad(bad_strategy("materialize", "leak")),
              {"strategy 'bad' was destroyed and had not released 'a block' (4096 bytes of tag optim) of ddh.alloc;"});
  check_named(run_bad(bad_strategy("step", "leak", {"--comm", "loop", "strategy.rank=1"})),
              {"rank 1: strategy 'bad' was destroyed and had not released 'a block'", "and 3 more"});
  check_named(run_bad(bad_strategy("step", "leak", {"--device", "sim"})),
              {"strategy 'bad' was destroyed and had not released 'a block'", "and 3 more"});
}

TEST_CASE("a write beyond the end of memory is found at its release", "[checked]") {
  const std::string behind = "memory behind the end of ", whose = "strategy 'bad' allocated";
  check_named(run_bad(bad_strategy("step", "write_behind")),
              {behind + "'a block' (4096 bytes of tag optim)", whose, "first at byte 0 after the end"});
  check_named(run_bad(bad_strategy("step", "write_behind_and_keep", {"strategy.step=4"})),
              {behind + "'a kept block' (4096 bytes of tag optim)", whose});
}

TEST_CASE("a write beyond the end of a window or an exchange is found", "[checked]") {
  const char* const comm = GENERATE("shm", "loop");
  const char* const windows = GENERATE("comm.windows=auto", "comm.windows=copy");
  const Words more = {"--comm", comm, windows, "strategy.step=2"};
  check_named(run_bad(bad_strategy("step", "window_behind", more)),
              {"memory behind the end of", "'a window'", "strategy 'bad'"});
  check_named(run_bad(bad_strategy("step", "exchange_behind", more)),
              {"memory behind the end of", "'an exchange'", "strategy 'bad'"});
}

TEST_CASE("windows and events are destroyed once", "[checked]") {
  const char* const device = GENERATE("cpu", "sim");
  const auto check = [&](const char* fault, const Words& words) {
    check_named(run_bad(bad_strategy("step", fault, {"--device", device, "strategy.step=2"})), words);
  };
  check("window_leak", {"strategy 'bad' was destroyed and had not destroyed its window 'a window'"});
  check("window_twice", {"strategy 'bad' destroyed something that is not a window of its own"});
  check("event_leak", {"strategy 'bad' was destroyed and had not destroyed its event"});
  check("event_twice", {"strategy 'bad' destroyed something that is not an event of its own"});
}
