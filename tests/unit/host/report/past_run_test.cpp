// SPDX-License-Identifier: Apache-2.0
//
// Folders of runs that are damaged, cut at any byte, of an older version, hostile or large.
#include <catch2/catch.hpp>
#include <fstream>

#include "fixtures/harness/ddhost_process.hpp"
#include "report/page.hpp"
#include "report/past_run.hpp"
#include "report/run_diff.hpp"
#include "report/run_tables.hpp"

using namespace ddhost;
using ddhost::test::TempFolder;
namespace fs = std::filesystem;

namespace {

const std::map<std::string, std::string> kFiles = {
    {"config.json", R"({"run":{"nproc":2},"model":{"plugin":"m"},"strategy":{"plugin":"s"},"train":{"steps":3}})"},
    {"run.json",
     R"({"starts":[{"began":"2026-01-02T03:04:05Z","machine":{"cores":2},"plugins":[{"kind":"model","id":"m"}],)"
     R"("given":[{"key":"train.steps","source":"x","default":1}],"warnings":["w"],"exit_code":1,"sentence":"it failed"}]})"},
    {"metrics.jsonl", R"({"step":1,"loss":4,"step_ms":2,"tokens_per_s":100}
{"step":2,"loss":null,"step_ms":2,"tokens_per_s":100}
{"step":2,"val_loss":3.5}
{"summary":{"steps":2,"world_size":2,"ranks":[{"memory_bytes":{"param":{"peak":10}},"time_ms":{"comm":1}}]}}
)"},
    {"log.txt", "2026-01-02 rank 0 warning: careful\n"},
    {"run.lock", R"({"begun":0,"steps":3,"saved":0})"}};

// A folder whose files have the given texts; "run.lock" and metrics.jsonl mark it as a run.
class Folder {
 public:
  explicit Folder(const std::map<std::string, std::string>& files) {
    for (const auto& [name, text] : files) write(name, text);
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(temp_.path() / name, std::ios::binary) << text;
  }
  [[nodiscard]] fs::path path() const { return temp_.path(); }

 private:
  TempFolder temp_;
};

const std::string* note_with(const PastRun& run, const std::string& word) {
  for (const std::string& note : run.notes)
    if (note.find(word) != std::string::npos) return &note;
  return nullptr;
}

}  // namespace

TEST_CASE("the folder of a run tells what a list shows", "[report]") {
  const Folder folder(kFiles);
  for (const Rows rows : {Rows::all, Rows::few}) {
    const PastRun run = read_past_run(folder.path(), rows);
    CHECK(run.notes.empty());
    CHECK(run.state() == "failed");
    CHECK(run.began == "2026-01-02 03:04:05");
    CHECK(run.ranks() == 2);
    CHECK(run.last_step == 3);
    REQUIRE(run.loss);
    CHECK(std::isnan(*run.loss));
    REQUIRE(run.best);
    CHECK(run.best->value == 3.5);
    CHECK(run.items == "tokens");
    CHECK(run.items_per_s == Approx(100));
  }
  CHECK(read_past_run(folder.path(), Rows::all).log.size() == 1);
}

TEST_CASE("each file may be cut at any byte: the rest is shown, and a page is made", "[report]") {
  for (const auto& [name, text] : kFiles) {
    const Folder folder(kFiles);
    for (size_t bytes = 0; bytes < text.size(); ++bytes) {
      folder.write(name, text.substr(0, bytes));
      INFO(name << " with " << bytes << " bytes");
      PastRun run;
      REQUIRE_NOTHROW(run = read_past_run(folder.path(), Rows::all));
      if (bytes % 7 == 0) REQUIRE_NOTHROW(report_page(run));
      const bool is_json = name == "config.json" || name == "run.json";
      if (is_json && bytes > 0) CHECK(note_with(run, name) != nullptr);
    }
  }
}

TEST_CASE("a run of an older version, without run.json and log, is shown", "[report]") {
  std::map<std::string, std::string> files;
  files["metrics.jsonl"] = kFiles.at("metrics.jsonl");
  const Folder folder(files);
  const PastRun run = read_past_run(folder.path(), Rows::all);
  CHECK(run.state() == "done");
  CHECK(run.last_step == 2);
  CHECK_NOTHROW(report_page(run));
  files = {};
  files["notes.txt"] = "mine";
  const Folder none(files);
  CHECK_FALSE(is_run_folder(none.path()));
  CHECK_THROWS_WITH(read_past_run(none.path(), Rows::all), Catch::Contains("is not the folder of a run"));
}

TEST_CASE("what a file must not hold is a note, not an error", "[report]") {
  Folder folder(kFiles);
  folder.write("metrics.jsonl", "{\"step\":1,\"loss\":NaN}\nnot a row\n\n[1]\n{\"step\":\"x\"}\n" +
                                    std::string(100'000, '[') +
                                    "\n{\"step\":5,\"loss\":2.5,\"step_ms\":1}\n{\"step\":6,\"lo");
  const PastRun run = read_past_run(folder.path(), Rows::all);
  CHECK(run.loss == 2.5);
  CHECK(note_with(run, "6 lines of metrics.jsonl can't be read") != nullptr);
  CHECK(note_with(run, "ends within a row") != nullptr);
  folder.write("config.json", "[1, 2]");
  CHECK(note_with(read_past_run(folder.path(), Rows::few), "config.json is no JSON object") != nullptr);
  for (const char* odd : {R"({"starts":7})", R"({"starts":[1,"x",null]})",
                          R"({"starts":[{"plugins":{"a":1},"given":[3],"machine":4,"exit_code":"x"}]})"}) {
    folder.write("run.json", odd);
    PastRun other;
    REQUIRE_NOTHROW(other = read_past_run(folder.path(), Rows::all));
    CHECK_NOTHROW(report_page(other));
    CHECK_NOTHROW(json_of(other));
    CHECK_NOTHROW(run_diff(other, run));
  }
  for (const char* odd :
       {"7", "[]", R"({"ranks":5,"estimates":1})", R"({"ranks":[1,{"memory_bytes":[],"time_ms":{"a":null}}]})"}) {
    folder.write("metrics.jsonl", std::string("{\"step\":1,\"loss\":1,\"step_ms\":1}\n{\"summary\":") + odd + "}\n");
    PastRun other;
    REQUIRE_NOTHROW(other = read_past_run(folder.path(), Rows::all));
    CHECK_NOTHROW(report_page(other));
  }
}

TEST_CASE("names and texts of a run can't become HTML or control a terminal", "[report]") {
  const std::string bad = "<img src=x onerror=alert(1)>\\u001b[31m", name = "</script><script>alert(1)</script>";
  std::map<std::string, std::string> files = kFiles;
  files["config.json"] = R"({"model":{"plugin":")" + bad + R"("},"strategy":{")" + bad + R"(":")" + bad + R"("}})";
  files["run.json"] = R"({"starts":[{"machine":{")" + bad + R"(":")" + bad + R"("},"plugins":[{"kind":")" + bad +
                      R"("}],"given":[{"key":")" + bad + R"("}],"warnings":[")" + bad + R"("],"sentence":")" + bad +
                      R"("}]})";
  files["metrics.jsonl"] = R"({"step":1,"loss":1,")" + bad + R"(":2,"step_ms":1,"program":")" + bad +
                           "\"}\n{\"summary\":{\"ranks\":[{\"memory_bytes\":{\"" + bad +
                           "\":{\"peak\":5}},\"time_ms\":{\"" + bad + "\":1}}]}}\n";
  files["log.txt"] = "x warning: <b>\x1b[2J\n";
  const Folder folder(files);
  fs::create_directory(folder.path() / "x");
  PastRun run = read_past_run(folder.path(), Rows::all);
  run.name = name;
  run.notes.push_back(bad);
  const std::string page = report_page(run);
  for (const char* raw : {"<img", "<script", "<b>", "\x1b"}) CHECK(page.find(raw) == std::string::npos);
  CHECK(page.find("&lt;img") != std::string::npos);
  CHECK(page.find("default-src 'none'") != std::string::npos);
  CHECK(as_text(facts_table(run)).find('\x1b') == std::string::npos);
}

TEST_CASE("the page of a large run has less than 300 KB and refers to nothing", "[report]") {
  Folder folder(kFiles);
  std::string rows, ranks;
  for (int step = 1; step <= 6000; ++step) {
    rows += "{\"step\":" + std::to_string(step) + ",\"step_ms\":1";
    for (int v = 0; v < 20; ++v)
      rows += ",\"value_" + std::to_string(v) + "\":" + std::to_string((step * 7919 + v * 31) % 1000);
    rows += "}\n";
  }
  for (int r = 0; r < 1024; ++r)
    ranks += std::string(r == 0 ? "" : ",") +
             R"({"memory_bytes":{"param":{"peak":10},"act":{"peak":20}},"time_ms":{"comm":1,"forward":2}})";
  folder.write("metrics.jsonl", rows + "{\"summary\":{\"world_size\":1024,\"ranks\":[" + ranks + "]}}\n");
  std::string log;
  for (int i = 0; i < 5000; ++i) log += "t rank 0 warning: " + std::string(900, 'w') + "\n";
  folder.write("log.txt", log);
  const std::string page = report_page(read_past_run(folder.path(), Rows::all));
  CHECK(page.size() < 300'000);
  CHECK(page.size() > 50'000);
  for (const char* reference : {"http:", "https:", "src=", "href=", "url(", "@import", "<script"}) {
    std::string without = page;
    for (size_t at; (at = without.find("http://www.w3.org/2000/svg")) != std::string::npos;) without.erase(at, 26);
    CHECK(without.find(reference) == std::string::npos);
  }
}

TEST_CASE("two runs differ in options, plugins and machine, and from a step on in values", "[report]") {
  const Folder a(kFiles);
  std::map<std::string, std::string> files = kFiles;
  files["config.json"] =
      R"({"run":{"nproc":4,"dir":"/x"},"model":{"plugin":"m"},"strategy":{"plugin":"s"},"train":{"steps":3}})";
  files["metrics.jsonl"] =
      "{\"step\":1,\"loss\":4,\"step_ms\":9,\"tokens_per_s\":1}\n{\"step\":2,\"loss\":3,\"step_ms\":2}\n";
  const Folder b(files);
  const Json diff = run_diff(read_past_run(a.path(), Rows::few), read_past_run(b.path(), Rows::few));
  REQUIRE(diff["options"].size() == 1);
  CHECK(diff["options"][0]["key"] == "run.nproc");
  CHECK(diff["values"]["equal"] == 1);
  CHECK(diff["values"]["first"]["step"] == 2);
  CHECK(diff["values"]["first"]["values"][0]["name"] == "loss");
  CHECK(diff["values"]["only_a"] == 1);
  const Json same = run_diff(read_past_run(a.path(), Rows::few), read_past_run(a.path(), Rows::few));
  CHECK(same["options"].empty());
  CHECK(same["values"]["first"].is_null());  // also where a value is no number
}
