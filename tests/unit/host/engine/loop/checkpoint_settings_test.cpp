// SPDX-License-Identifier: Apache-2.0
//
// For how many checkpoints a run needs room, at its begin and after a resume.
#include "engine/loop/checkpoint_settings.hpp"

#include <catch2/catch.hpp>

using namespace ddhost;

namespace {

// 100 steps of 2 samples, after the first `done`.
TrainOrder order_after(int64_t done) {
  TrainOrder order({TrainPhase{{{0, 2}}, 100, 0}}, 1, {{0, SampleOrder(10, 7, "")}}, {1, 1, 1});
  TrainPosition at = order.begin();
  for (int64_t i = 0; i < done; ++i) static_cast<void>(order.advance(at));
  order.begin_after(at);
  return order;
}

CheckpointSettings every(int64_t steps, KeepRule keep) {
  CheckpointSettings settings;
  settings.every = steps;
  settings.keep = keep;
  return settings;
}

}  // namespace

TEST_CASE("a run needs room for the checkpoints that it keeps at a time", "[checkpoint]") {
  CHECK(checkpoints_to_come(every(10, {2, 0}), order_after(0), 0) == 3);   // two, and one while it is written
  CHECK(checkpoints_to_come(every(10, {2, 50}), order_after(0), 0) == 5);  // and steps 50 and 100
  CHECK(checkpoints_to_come(every(10, {0, 0}), order_after(0), 0) == 11);  // all, and the one at the end
  CHECK(checkpoints_to_come(every(100, {5, 0}), order_after(0), 0) == 2);
}

TEST_CASE("a run whose checkpoints do not fit on the disk is refused with its sizes", "[checkpoint]") {
  const std::filesystem::path here = std::filesystem::temp_directory_path();
  CHECK_NOTHROW(require_disk(every(10, {2, 0}), order_after(0), here, 1));
  CHECK_THROWS_WITH(require_disk(every(10, {2, 0}), order_after(0), here, uint64_t{1} << 55),
                    Catch::Contains("(3 of 34359738368.0 MiB each)") && Catch::Contains(here.string()));
}

TEST_CASE("a resumed run needs no room for the checkpoints that it has", "[checkpoint]") {
  CHECK(checkpoints_to_come(every(10, {2, 0}), order_after(50), 2) == 1);
  CHECK(checkpoints_to_come(every(10, {2, 0}), order_after(50), 9) == 1);
  CHECK(checkpoints_to_come(every(10, {0, 0}), order_after(50), 5) == 6);
  CHECK(checkpoints_to_come(every(10, {2, 0}), order_after(100), 2) == 0);
}
