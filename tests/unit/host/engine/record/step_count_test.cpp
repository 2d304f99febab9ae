// SPDX-License-Identifier: Apache-2.0
//
// The numbers in run.lock.
#include "engine/record/step_count.hpp"

#include <catch2/catch.hpp>

#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;
using namespace ddhost::test;
namespace fs = std::filesystem;

TEST_CASE("the steps of a run are read back, also after a longer number", "[monitor]") {
  const TempFolder folder;
  CHECK_FALSE(read_step_numbers(folder.path()));
  std::ofstream(folder.file(kRunLock)) << "";
  CHECK_FALSE(read_step_numbers(folder.path()));
  for (const int64_t begun : {int64_t{1} << 62, int64_t{4}}) {
    const int64_t saved_before = read_step_numbers(folder.path()).value_or(StepNumbers{}).saved;
    StepCount count(folder.path(), {begun, begun, 0, UINT64_MAX});
    CHECK(read_step_numbers(folder.path())->steps == begun);
    CHECK(read_step_numbers(folder.path())->saved == saved_before);
    count.done(begun + 3);
    count.saved(begun + 2);
    const std::optional<StepNumbers> numbers = read_step_numbers(folder.path());
    REQUIRE(numbers);
    CHECK(numbers->begun == begun);
    CHECK(numbers->first_run == UINT64_MAX);
    CHECK(numbers->steps == begun + 3);
    CHECK(numbers->saved == begun + 2);
  }
}

TEST_CASE("the numbers of an earlier version have no checkpoints in the memory of hosts", "[monitor]") {
  const TempFolder folder;
  std::ofstream(folder.file(kRunLock)) << R"({"begun": 4, "steps": 9, "saved": 8})";
  CHECK(read_step_numbers(folder.path()) == StepNumbers{4, 9, 8, 0});
}

TEST_CASE("a file that is not that of a run has no numbers", "[monitor]") {
  const TempFolder folder;
  for (const char* text : {"{", "[1]", R"({"begun": 0, "steps": 2})", R"({"begun": 0, "steps": "2", "saved": 0})"}) {
    std::ofstream(folder.file(kRunLock)) << text;
    CHECK_FALSE(read_step_numbers(folder.path()));
  }
}

TEST_CASE("a file that can't be written is named", "[monitor]") {
  const TempFolder folder;
  CHECK_THAT(sentence_of([&] { StepCount(folder.path(), {}); }), Catch::Contains(folder.file(kRunLock)));
  fs::create_symlink("/dev/full", folder.file(kRunLock));
  CHECK_THAT(sentence_of([&] { StepCount(folder.path(), {}); }), Catch::Contains("No space left"));
}
