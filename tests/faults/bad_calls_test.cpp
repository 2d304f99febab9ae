// SPDX-License-Identifier: Apache-2.0
//
// Calls that fail without a reason, end the process or kill it: the error names plugin and call, and an unfinished run
// never looks finished.
#include "fixtures/harness/bad_run.hpp"

using namespace ddhost::test;

TEST_CASE("the control: the faulty plugins train to the end if no fault is chosen", "[misbehaving]") {
  const char* const comm = GENERATE("shm", "loop");
  for (const Words& options : {bad_strategy("", "none"), bad_model("", "none"), bad_optimizer("", "none")}) {
    Words more = options;
    more.insert(more.end(), {"--comm", comm});
    const BadEnd end = run_bad(more);
    INFO(end.command << "\n" << end.err);
    CHECK(end.code == 0);
  }
}

TEST_CASE("a call that fails without a reason is named, with its code", "[misbehaving]") {
  const std::string code = "failed with DDH_INTERNAL (13) and gave no reason; fix the plugin";
  check_named(run_bad(bad_strategy("create", "silent")), {"strategy 'bad', create", code});
  check_named(run_bad(bad_strategy("attach", "silent")), {"strategy 'bad', attach", code});
  check_named(run_bad(bad_strategy("acquire", "silent", {"strategy.rank=1", "strategy.step=3"})),
              {"rank 1: strategy 'bad', acquire of unit 'embed'", code});
  check_named(run_bad(bad_strategy("step", "silent", {"strategy.rank=1"})), {"rank 1: strategy 'bad', step", code});
  check_named(run_bad(bad_optimizer("update", "silent")), {"optimizer 'bad_optimizer', update", code});
  check_named(run_bad(bad_strategy("acquire", "unknown_code")), {"strategy 'bad', acquire", "the unknown code 77"});
}

TEST_CASE("a plugin's error text is never read past its end", "[misbehaving]") {
  const BadEnd unending = run_bad(bad_strategy("acquire", "unending"));
  check_named(unending, {"strategy 'bad', acquire", "xxxx"});
  CHECK(std::count(unending.err.begin(), unending.err.end(), 'x') <= 1024 + 64);
  const BadEnd too_long = run_bad(bad_strategy("acquire", "long"));
  check_named(too_long, {"strategy 'bad', acquire of unit 'embed': short\n"});
  const BadEnd binary = run_bad(bad_strategy("acquire", "binary"));
  check_named(binary, {": a?"
                       "?(?z\n"});
}

TEST_CASE("a plugin that calls exit(0) does not finish the run", "[misbehaving]") {
  const std::string end = "ended without finishing the run (exit code 0)";
  check_named(run_bad(bad_strategy("create", "exit")), {"rank", end, "in create of strategy 'bad'", "fix it"});
  check_named(run_bad(bad_strategy("step", "exit")), {"rank", end, "in step of strategy 'bad'", "at step 1"});
  check_named(run_bad(bad_strategy("step", "quick_exit", {"strategy.rank=1", "strategy.step=2"})),
              {"rank 1", end, "in step of strategy 'bad'", "at step 2"});
  check_named(run_bad(bad_strategy("destroy", "exit")), {end, "in destroy of strategy 'bad'"});
  check_named(run_bad(bad_model("batch_create", "exit")), {end, "in batch_create of model 'bad_model'"});
}

TEST_CASE("a plugin that overflows its stack in a run with threads is named", "[misbehaving]") {
  check_named(run_bad(bad_strategy("step", "overflow", {"--comm", "loop", "strategy.rank=1"})),
              {"signal 11", "rank 1 was in step of strategy 'bad'"});
}

TEST_CASE("a plugin that calls exit(0) in a run with threads makes the run fail", "[misbehaving]") {
  check_named(run_bad(bad_strategy("create", "exit", {"--comm", "loop"})),
              {"exit() was called", "in create of strategy 'bad'", "fix the plugin"});
  check_named(run_bad(bad_strategy("step", "exit", {"--comm", "loop", "strategy.rank=1"})),
              {"rank 1 was in step of strategy 'bad'"});
  check_named(run_bad(bad_model("batch_create", "exit", {"--comm", "loop"})), {"in batch_create of model 'bad_model'"});
  // All ranks call it at the same time.
  for (int i = 0; i < 10; ++i)
    check_named(run_bad(bad_strategy("destroy", "exit", {"--comm", "loop"})), {"in destroy of strategy 'bad'"});
}

TEST_CASE("a plugin that calls _exit(0) in a run with threads makes the run fail, and is named", "[misbehaving]") {
  const std::string end = "ended without finishing the run (exit code 0)";
  check_named(run_bad(bad_strategy("step", "quick_exit", {"--comm", "loop", "strategy.step=2"})),
              {end, "in step of strategy 'bad'", "at step 2", "must not end the process"});
  check_named(run_bad(bad_strategy("create", "quick_exit", {"--comm", "loop"})), {end, "in create of strategy 'bad'"});
  // The thread that did it is not known, so both ranks are told.
  check_named(run_bad(bad_strategy("step", "quick_exit", {"--comm", "loop", "strategy.rank=1"})),
              {end, "rank 0 was in", "rank 1 was in step of strategy 'bad'"});
  check_named(run_bad(bad_model("batch_create", "quick_exit", {"--comm", "loop"})),
              {end, "in batch_create of model 'bad_model'"});
}

TEST_CASE("a library that ends, crashes or hangs the program while it is loaded is named", "[misbehaving]") {
  const Words options = {"--strategy", test_plugin("bad_loading")};
  check_named(run_bad(options, "exit"),
              {"bad_loading.so", "ended the process that loaded it (exit code 0)", "must not call exit"});
  check_named(run_bad(options, "quick_exit"), {"bad_loading.so", "ended the process that loaded it (exit code 0)"});
  check_named(run_bad(options, "segv"), {"bad_loading.so", "signal 11", "build or copy it again"});
  Words impatient = options;
  impatient.insert(impatient.end(), {"run.watchdog=0.2", "run.watchdog_abort=1"});
  const BadEnd hang = run_bad(impatient, "hang");
  check_named(hang, {"loading strategy", "bad_loading.so", "run.watchdog_abort=1 s"});
  CHECK_THAT(hang.err, Catch::Contains("bad_loading.so' has taken 0.6 s so far\n"));
}

// A child loads each library first. A library that behaves there and not in the run was not seen.
TEST_CASE("a library that misbehaves only when it is loaded a second time is named", "[misbehaving]") {
  const char* const comm = GENERATE("shm", "loop");
  const auto at_second_load = [&](const std::string& how, const Words& more = {}) {
    const TempFolder folder;
    setenv("BAD_LOADING_MARK", folder.file("mark").c_str(), 1);
    Words options = {"--strategy", test_plugin("bad_loading"), "--comm", comm};
    options.insert(options.end(), more.begin(), more.end());
    BadEnd end = run_bad(options, how);
    unsetenv("BAD_LOADING_MARK");
    return end;
  };
  const BadEnd silent = at_second_load("quick_exit");
  check_named(silent, {"exit code 0", "while loading strategy", "bad_loading.so", "must not end the process"});
  CHECK(silent.code == 1);
  check_named(at_second_load("exit"), {"exit() was called while loading strategy", "bad_loading.so", "fix the plugin"});
  check_named(at_second_load("segv"), {"killed by signal 11 while loading strategy", "bad_loading.so"});
  check_named(at_second_load("overflow"), {"signal 11", "while loading strategy", "bad_loading.so"});
  check_named(at_second_load("hang", {"run.watchdog=0.2", "run.watchdog_abort=1"}),
              {"loading strategy", "bad_loading.so", "has taken 1", "run.watchdog_abort=1 s"});
}

TEST_CASE("a plugin that dies is named with its signal and its call", "[misbehaving]") {
  check_named(run_bad(bad_strategy("acquire", "segv", {"strategy.rank=1", "strategy.step=2"})),
              {"rank 1", "killed by signal 11", "in acquire of unit 'embed' of strategy 'bad'", "at step 2"});
  check_named(run_bad(bad_strategy("step", "abort", {"strategy.rank=0"})),
              {"rank 0", "killed by signal 6", "in step of strategy 'bad'"});
  check_named(run_bad(bad_strategy("grads_ready", "throw", {"strategy.rank=0"})),
              {"rank 0", "killed by signal 6", "in grads_ready of unit", "of strategy 'bad'"});
  check_named(run_bad(bad_optimizer("update", "segv")),
              {"killed by signal 11", "in update of optimizer 'bad_optimizer' (in step of strategy 'ddp')"});
  check_named(run_bad(bad_strategy("step", "segv", {"--comm", "loop", "strategy.rank=1"})),
              {"killed by signal 11", "rank 1 was in step of strategy 'bad'"});
}
