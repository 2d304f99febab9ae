// SPDX-License-Identifier: Apache-2.0
//
// The folder of a run that is going on, read while it grows: the same is shown as by reading it once.
#include <catch2/catch.hpp>
#include <fstream>

#include "ddh/sdk/plugin.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "report/followed_run.hpp"
#include "report/page.hpp"

using namespace ddhost;
using ddhost::test::TempFolder;

namespace {

std::string row(int step) {
  return ddh::str("{\"step\":", step, ",\"loss\":", 4.0 - step * 1e-6, ",\"step_ms\":2,\"tokens_per_s\":100}\n");
}

class Growing {
 public:
  Growing() {
    add("config.json", R"({"run":{"nproc":2},"model":{"plugin":"m"},"train":{"steps":3}})");
    add("run.json", R"({"starts":[{"began":"2026-01-02T03:04:05Z","warnings":["w"]}]})");
    add("run.lock", R"({"begun":0,"steps":0,"saved":0})");
  }
  void add(const std::string& file, const std::string& text) const {
    std::ofstream(temp_.path() / file, std::ios::binary | std::ios::app) << text;
  }
  void replace(const std::string& file, const std::string& text) const {
    std::filesystem::remove(temp_.path() / file);
    add(file, text);
  }
  [[nodiscard]] std::filesystem::path path() const { return temp_.path(); }

 private:
  TempFolder temp_;
};

}  // namespace

TEST_CASE("rows and warnings arrive in pieces of any size", "[report]") {
  const Growing folder;
  const std::string rows = row(1) + row(2) + "{\"step\":2,\"val_loss\":3.5}\n" + "no row\n" + row(3);
  FollowedRun followed(folder.path());
  followed.update();
  CHECK(followed.run().curves.empty());
  CHECK(followed.run().notes.size() == 1);
  for (const char c : rows) {
    folder.add("metrics.jsonl", std::string(1, c));
    followed.update();
  }
  folder.add("log.txt", "2026-01-02 rank 0 warning: care");
  followed.update();
  CHECK(followed.run().log.empty());
  folder.add("log.txt", "ful\n2026-01-02 rank 0 info: fine\n");
  followed.update();
  followed.run().is_alive = false;
  const PastRun whole = read_past_run(folder.path(), Rows::all);
  CHECK(report_body(followed.run(), 100).find("careful") != std::string::npos);
  REQUIRE(followed.run().notes.size() == 1);
  CHECK_THAT(followed.run().notes[0], Catch::Contains("1 line of the rows"));
  REQUIRE(followed.run().curves.size() == whole.curves.size());
  for (size_t i = 0; i < whole.curves.size(); ++i) {
    CHECK(followed.run().curves[i].name() == whole.curves[i].name());
    CHECK(followed.run().curves[i].count() == whole.curves[i].count());
  }
  CHECK(followed.run().best->value == 3.5);
  CHECK(followed.run().last_step == 3);
  CHECK(followed.run().items_per_s == whole.items_per_s);
}

TEST_CASE("a file of rows that begins anew is read anew", "[report]") {
  const Growing folder;
  folder.add("metrics.jsonl", row(1) + row(2) + row(3));
  FollowedRun followed(folder.path());
  followed.update();
  CHECK(followed.run().curve("loss")->count() == 3);
  folder.replace("metrics.jsonl", row(1));
  followed.update();
  CHECK(followed.run().curve("loss")->count() == 1);
}

TEST_CASE("of very many new rows some are left out, but neither the newest nor an evaluation", "[report]") {
  const Growing folder;
  constexpr int kRows = 100'000;
  std::string rows;
  for (int step = 1; step <= kRows; ++step) {
    rows += row(step);
    if (step % 1000 == 0) rows += ddh::str("{\"step\":", step, ",\"val_loss\":3}\n");
  }
  folder.add("metrics.jsonl", rows);
  FollowedRun followed(folder.path());
  followed.update();
  const Curve* const loss = followed.run().curve("loss");
  CHECK(loss->count() < kRows / 10);
  CHECK(loss->count() > 500);
  CHECK(loss->last()->x == kRows);
  CHECK(followed.run().curve("val_loss")->count() == kRows / 1000);
}

TEST_CASE("a line without an end takes no memory without end", "[report]") {
  const Growing folder;
  FollowedRun followed(folder.path());
  for (int i = 0; i < 4; ++i) {
    folder.add("metrics.jsonl", std::string(size_t{1} << 19, 'a'));
    followed.update();
  }
  folder.add("metrics.jsonl", "\n" + row(1));
  followed.update();
  CHECK(followed.run().curve("loss")->count() == 1);
}

TEST_CASE("rows of a part that was cut off are gone, also where the file has grown again meanwhile", "[report]") {
  const Growing folder;
  folder.add("metrics.jsonl", row(1) + row(2) + row(3) + "{\"summary\":{\"steps\":3}}\n");
  FollowedRun followed(folder.path());
  followed.update();
  CHECK(followed.has_summary());
  std::filesystem::resize_file(folder.path() / "metrics.jsonl", row(1).size());
  std::string more;
  for (int step = 2; step < 9; ++step) more += ddh::str("{\"step\":", step, ",\"loss\":1.5,\"step_ms\":3}\n");
  folder.add("metrics.jsonl", more);
  followed.update();
  const PastRun whole = read_past_run(folder.path(), Rows::all);
  REQUIRE(followed.run().curve("loss") != nullptr);
  CHECK(followed.run().curve("loss")->count() == 8);
  CHECK(followed.run().last_step == whole.last_step);
  CHECK(followed.run().notes == whole.notes);
  CHECK(!followed.has_summary());
  CHECK(followed.run().summary.is_null());
}

TEST_CASE("the last state of a long file has its last row and its summary", "[report]") {
  const Growing folder;
  std::string rows;
  for (int step = 1; rows.size() < size_t{40} << 20; ++step) rows += row(step);
  folder.add("metrics.jsonl", rows + row(5'000'000) + "{\"summary\":{\"steps\":5000000}}\n");
  for (const auto most : {std::chrono::milliseconds(60'000), std::chrono::milliseconds(0)}) {
    FollowedRun followed(folder.path());
    followed.catch_up(most);
    followed.update();
    CHECK(followed.run().last_step == 5'000'000);
    CHECK(followed.has_summary());
    CHECK(followed.run().notes.empty() == (most.count() > 0));
  }
}

TEST_CASE("who is told to stop does not measure the folder to its end", "[report]") {
  const Growing folder;
  FollowedRun stopped(folder.path(), [] { return true; }), whole(folder.path(), [] { return false; });
  stopped.update();
  whole.update();
  CHECK(stopped.run().bytes == 0);
  CHECK(whole.run().bytes > 0);
}
