// SPDX-License-Identifier: Apache-2.0
//
// Schedules and monitors that throw, return wrong values or end the process: the run ends with one sentence that names
// plugin and call.
#include "fixtures/harness/bad_run.hpp"

using namespace ddhost::test;

namespace {

Words bad_schedule(const std::string& at, const std::string& fault, const Words& more = {}) {
  Words out = {"--schedule", test_plugin("bad_schedule"), "schedule.at=" + at, "schedule.fault=" + fault};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}
Words bad_monitor(const std::string& at, const std::string& fault, const Words& more = {}) {
  Words out = {"--monitor", "jsonl," + test_plugin("bad_monitor"), "monitor.bad_monitor.at=" + at,
               "monitor.bad_monitor.fault=" + fault};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

}  // namespace

TEST_CASE("the control: the faulty schedule and monitor train to the end if no fault is chosen", "[misbehaving]") {
  for (const Words& options : {bad_schedule("", "none"), bad_monitor("", "none")}) {
    const BadEnd end = run_bad(options);
    INFO(end.command << "\n" << end.err);
    CHECK(end.code == 0);
  }
}

TEST_CASE("a schedule that throws or returns an invalid rate ends the run, and the error names it", "[misbehaving]") {
  check_named(run_bad(bad_schedule("lr", "nan", {"schedule.step=2"})),
              {"schedule 'bad_schedule', lr", "nan for step 2", "finite", "fix the plugin"});
  check_named(run_bad(bad_schedule("lr", "negative")), {"schedule 'bad_schedule', lr", "-1 for step 1"});
  check_named(run_bad(bad_schedule("lr", "throw")), {"schedule 'bad_schedule', lr", "the tide is out"});
  check_named(run_bad(bad_schedule("step_done", "throw")), {"schedule 'bad_schedule', step_done", "the tide is out"});
  check_named(run_bad(bad_schedule("lr", "segv")), {"killed by signal 11", "in lr of schedule 'bad_schedule'"});
}

TEST_CASE("a schedule that returns another rate on one rank ends the run", "[misbehaving]") {
  check_named(run_bad(bad_schedule("lr", "differ", {"schedule.step=2", "--comm", "loop"})),
              {"the learning rate of step 2 is 0.", "on rank 0 and 0.", "on rank 1", "fix the schedule"});
}

TEST_CASE("numbers of a schedule that a checkpoint can't store are refused before the training", "[misbehaving]") {
  check_named(run_bad(bad_schedule("number", "null_name")), {"schedule 'bad_schedule', number", "without a name"});
  check_named(run_bad(bad_schedule("number", "null_value")), {"schedule 'bad_schedule', number", "(NULL)"});
  check_named(run_bad(bad_schedule("number", "twice")), {"schedule 'bad_schedule', number", "two numbers", "'lr'"});
}

// The resumed run went on with the schedule's first values, without a word.
TEST_CASE("a schedule that does not keep the numbers of a checkpoint ends the resumed run", "[misbehaving]") {
  const TempFolder folder;
  const auto resumed = [&](const std::string& fault) {
    const std::string dir = folder.file(fault);
    const BadEnd first = run_bad(bad_schedule("number", fault, {"run.dir=" + dir, "checkpoint.every=2"}));
    INFO(first.command << "\n" << first.err);
    REQUIRE(first.code == 0);
    return run_bad(bad_schedule("number", fault, {"--resume", dir + "/checkpoints/step-2"}));
  };
  const BadEnd kept = resumed("own");
  INFO(kept.command << "\n" << kept.err);
  CHECK(kept.code == 0);
  check_named(resumed("copy"), {"schedule 'bad_schedule', number", "number 'steps' with the value 0 after",
                                "had written 2, from the checkpoint", "fix the plugin"});
}

TEST_CASE("a monitor that throws, has no table or dies ends the run, and the error names it", "[misbehaving]") {
  check_named(run_bad(bad_monitor("begin", "throw")), {"monitor 'bad_monitor', begin", "the tide is out"});
  check_named(run_bad(bad_monitor("row", "throw", {"monitor.bad_monitor.step=3"})),
              {"monitor 'bad_monitor', row", "the tide is out"});
  check_named(run_bad(bad_monitor("row", "throw_int")), {"monitor 'bad_monitor', row", "unknown exception"});
  check_named(run_bad(bad_monitor("end", "throw")), {"monitor 'bad_monitor', end", "the tide is out"});
  check_named(run_bad(bad_monitor("get_interface", "no_table")), {"monitor 'bad_monitor'", "lacks", "ddh.monitor/0"});
  check_named(run_bad(bad_monitor("get_interface", "empty")),
              {"monitor 'bad_monitor'", "whose function begin is NULL"});
  check_named(run_bad(bad_monitor("row", "segv")), {"killed by signal 11", "in row of monitor 'bad_monitor'"});
}
