// SPDX-License-Identifier: Apache-2.0
//
// A monitor whose service is slow, and writes with the queue of the SDK, does not slow the steps of a run.
#include <nlohmann/json.hpp>

#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;

namespace {

// Seconds of all steps, with what happens between them, and the rows that the monitor has written.
struct Slowed {
  double seconds;
  int64_t rows;
};

Slowed run_with(const std::string& queue) {
  const TempFolder folder;
  const Said said =
      call_ddhost({"--model", toy_model(), "--nproc", "2", "--monitor", "jsonl," + test_plugin("slow_monitor"),
                   "monitor.slow_monitor.row_ms=50", "monitor.slow_monitor.queue=" + queue, "train.steps=20",
                   "run.quiet=true", "run.sample_tokens=0", "run.dir=" + folder.file("run")});
  INFO(said.err);
  REQUIRE(said.code == 0);
  const std::string rows = read_text(folder.file("run/slow.txt"));
  return {read_run(folder.path() / "run").summary.at("seconds").get<double>(),
          std::count(rows.begin(), rows.end(), '\n')};
}

}  // namespace

TEST_CASE("a slow monitor with a queue slows no step, and all its rows are written", "[monitors]") {
  const Slowed queued = run_with("true"), direct = run_with("false");
  CHECK(direct.seconds > 0.9);  // 19 rows or more of 50 ms
  CHECK(queued.seconds < direct.seconds / 2);
  CHECK(queued.rows == direct.rows);
  CHECK(queued.rows >= 20);
}
