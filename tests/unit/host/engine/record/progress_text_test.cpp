// SPDX-License-Identifier: Apache-2.0
//
// The progress line at every width: it fits, and what matters most stays.
#include "engine/record/progress_text.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "base/terminal.hpp"

using namespace ddhost;
using Catch::Contains;

namespace {

const ReportedValue kValues[] = {{"loss", 2.34567}, {"准确率", 0.8125}, {"accuracy_of_the_second_head", 0.5}};

ProgressFacts facts() {
  ProgressFacts f;
  f.step = 120;
  f.last_step = 300;
  f.epoch = {2, 5, 0.405};
  f.values = kValues;
  f.lr = 3e-4;
  f.grad_norm = 1.25;
  f.items_per_s = 12345.6;
  f.items_name = "tokens";
  f.step_ms = 12.34;
  f.seconds_left = 62;
  f.memory_bytes = 1'234'567'890;
  f.checkpoint_seconds = 185;
  return f;
}

}  // namespace

TEST_CASE("at every width from 1 to 250 columns the progress fits into one line", "[progress]") {
  for (size_t columns = 1; columns <= 250; ++columns) {
    const std::string line = progress_text(facts(), columns);
    INFO(columns << ": " << line);
    CHECK(columns_of(line) <= columns);
    CHECK(line.find('\n') == std::string::npos);
  }
}

TEST_CASE("79 columns show step, epoch, loss, speed, ms, time left, memory and the age of the checkpoint",
          "[progress]") {
  CHECK(progress_text(facts(), 79) == "120/300 ep 2/5 40% loss 2.3457 12.3k tokens/s 12.3ms -1m02s 1.2GB ckpt 3m05s");
}

TEST_CASE("40 columns show step, loss and the time left, and a wide line shows all", "[progress]") {
  CHECK_THAT(progress_text(facts(), 40), Contains("120/300") && Contains("loss 2.3457") && Contains("-1m02s"));
  CHECK_THAT(progress_text(facts(), 20), Contains("120/300") && Contains("2.3457"));
  CHECK_THAT(progress_text(facts(), 4096),
             Contains("step 120/300  epoch 2/5 40%  loss 2.3457  lr 0.0003  norm 1.250  12346 tokens/s  12.3 ms  left "
                      "1m02s  memory 1234.6 MB  checkpoint 3m05s ago") &&
                 Contains("准确率 0.8125"));
}

TEST_CASE("a run without a checkpoint says so, and control characters of a model are shown as text", "[progress]") {
  ProgressFacts f = facts();
  f.checkpoint_seconds.reset();
  f.items_name = "tok\x1b[2Jens";
  CHECK_THAT(progress_text(f, 300), Contains("no checkpoint") && !Contains("\x1b"));
}

TEST_CASE("a duration has two units", "[progress]") {
  CHECK(duration_text(5) == "0m05s");
  CHECK(duration_text(3661) == "1h01m");
  CHECK(duration_text(360000) == "4d04h");
  CHECK(duration_text(std::nan("")) == "0m00s");
}
