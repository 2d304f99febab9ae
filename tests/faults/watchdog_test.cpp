// SPDX-License-Identifier: Apache-2.0
//
// The watchdog: a rank that hangs, loops or is stopped is named with its plugin and call, at increasing intervals, and
// the run ends at the user's limit.
#include "fixtures/harness/bad_run.hpp"

using namespace ddhost::test;
using Catch::Contains;

namespace {

// Notices after 0.3 s (calls that prepare: 0.9 s), the end after two.
Words impatient(Words options, const std::string& comm = "shm") {
  options.insert(options.end(), {"--comm", comm, "run.watchdog=0.3", "run.watchdog_abort=2"});
  return options;
}

size_t count(const std::string& text, const std::string& word) {
  size_t n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("a call that hangs is named with the ranks that wait for it, and ends the run", "[misbehaving][watchdog]") {
  const char* const comm = GENERATE("shm", "loop");
  const char* const how = GENERATE("hang", "loop");
  const BadEnd end = run_bad(impatient(bad_strategy("step", how, {"strategy.rank=1", "strategy.step=2"}), comm));
  check_named(end, {"rank 1 has been in step of strategy 'bad' for 2", "rank 0 waits for it in",
                    "run.watchdog_abort=2 s", "fix the plugin"});
  // At 0.3, 0.6 and 1.2 s, and the end.
  CHECK(count(end.err, "rank 1 has been in step of strategy 'bad'") <= 4);
  CHECK(count(end.err, "rank 1 has been in step of strategy 'bad'") >= 2);
}

TEST_CASE("create, attach, materialize, acquire and destroy that hang are named", "[misbehaving][watchdog]") {
  const char* const comm = GENERATE("shm", "loop");
  check_named(run_bad(impatient(bad_strategy("create", "hang"), comm)), {"has been in create of strategy 'bad' for 2"});
  for (const char* call : {"attach", "materialize", "acquire"})
    check_named(run_bad(impatient(bad_strategy(call, "hang", {"strategy.rank=1"}), comm)),
                {std::string("rank 1 has been in ") + call, "of strategy 'bad' for 2"});
  check_named(run_bad(impatient(bad_strategy("destroy", "hang", {"strategy.rank=1"}), comm)),
              {"rank 1 has been in destroy of strategy 'bad' for 2"});
}

TEST_CASE("models on both threads and optimizers that hang are named", "[misbehaving][watchdog]") {
  check_named(run_bad(impatient(bad_model("batch_create", "hang", {"model.step=2"}))),
              {"has been in batch_create of model 'bad_model' for 2"});
  check_named(run_bad(impatient(bad_model("backward", "hang"))), {"has been in backward of unit 'only' of model"});
  check_named(run_bad(impatient(bad_optimizer("update", "loop"))),
              {"has been in update of optimizer 'bad_optimizer' (in step of strategy 'ddp') for 2"});
}

TEST_CASE("a rank that is stopped by a signal is named", "[misbehaving][watchdog]") {
  check_named(run_bad(impatient(bad_strategy("step", "stop", {"strategy.rank=1", "strategy.step=2"}))),
              {"rank 1 is stopped by a signal, in step of strategy 'bad', for 2", "rank 0 waits for it"});
}

TEST_CASE("a watchdog without a time limit for the run still names the call, and one that is off prints nothing",
          "[misbehaving][watchdog]") {
  const Words hang = bad_strategy("step", "hang", {"strategy.rank=1"});
  Words never = hang, off = hang;
  never.insert(never.end(), {"run.watchdog=0.3", "run.watchdog_abort=0"});
  const BadEnd patient = run_bad(never, "", std::chrono::seconds(4));
  CHECK(patient.code == -1);
  CHECK_THAT(patient.err, Contains("rank 1 has been in step of strategy 'bad'"));
  off.insert(off.end(), {"run.watchdog=0", "run.watchdog_abort=1"});
  const BadEnd silent = run_bad(off, "", std::chrono::seconds(4));
  CHECK(silent.code == -1);
  CHECK(silent.err.empty());
}
