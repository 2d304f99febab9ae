// SPDX-License-Identifier: Apache-2.0
//
// A run that shows its page while it goes on: where it may listen, and what it must not change.
#include <catch2/catch.hpp>

#include "fixtures/harness/bad_run.hpp"
#include "fixtures/harness/processes.hpp"
#include "live/address.hpp"

using namespace ddhost::test;
namespace fs = std::filesystem;

namespace {

Words toy(const std::string& run_dir, const Words& more) {
  return joined({"--model", toy_model(), "--nproc", "2", "train.steps=20", "run.quiet=true", "run.dir=" + run_dir},
                more);
}

// The same losses and norms as a run without a page.
void check_same_rows(const TempFolder& folder, const Words& more) {
  const Said plain = call_ddhost(toy(folder.file("plain"), more));
  const Said shown = call_ddhost(toy(folder.file("shown"), joined(more, {"--page", "127.0.0.1:0"})));
  INFO(plain.err << shown.err);
  REQUIRE(plain.code == 0);
  REQUIRE(shown.code == 0);
  CHECK_THAT(shown.err,
             Catch::Matches("(.|\n)*ddhost: the page of this run: http://127.0.0.1:[0-9]+/[0-9a-f]{32}/\n(.|\n)*"));
  CHECK_THAT(plain.err, !Catch::Contains("http://"));
  const RunRecord a = read_run(folder.file("plain")), b = read_run(folder.file("shown"));
  REQUIRE(a.steps.size() == 20);
  REQUIRE(b.steps.size() == 20);
  for (size_t i = 0; i < a.steps.size(); ++i)
    for (const char* value : {"loss", "grad_norm"}) CHECK(a.steps[i][value] == b.steps[i][value]);
  for (const char* file : {"metrics.jsonl", "log.txt", "config.json", "run.json", "report.html"}) {
    const std::string text = read_text(folder.file(std::string("shown/") + file));
    CHECK_THAT(text, !Catch::Contains("http://127.0.0.1"));  // the secret of the address is in no file
  }
}

}  // namespace

TEST_CASE("a page changes no bit, whether ranks are processes or threads", "[cli]") {
  const TempFolder processes, threads;
  check_same_rows(processes, {});
  check_same_rows(threads, {"--comm", "loop"});
}

TEST_CASE("an address that others can reach, or that is none, is refused before anything is written", "[cli]") {
  for (const char* address : {"0.0.0.0:0", "192.0.2.1:80", "localhost", "127.0.0.1:99999", "<b>:1"}) {
    const TempFolder folder;
    const Said said = call_ddhost(toy(folder.file("run"), {"--page", address}));
    INFO(said.err);
    CHECK(said.code == 1);
    CHECK_THAT(said.err, Catch::Contains("monitor.page (--page) '" + std::string(address) + "'") &&
                             (Catch::Contains("give 127.0.0.1") || Catch::Contains("give for example 127.0.0.1:0")));
    CHECK(std::count(said.err.begin(), said.err.end(), '\n') == 1);
    CHECK(!fs::exists(folder.file("run")));
  }
}

TEST_CASE("a port in use is one sentence, before any rank starts", "[cli]") {
  ddhost::PageAddress taken = ddhost::parse_page_address("127.0.0.1:0");
  const ddhost::Fd socket = ddhost::listen_for_page(taken);
  const TempFolder folder;
  const Said said = call_ddhost(toy(folder.file("run"), {"monitor.page=" + taken.text()}));
  INFO(said.err);
  CHECK(said.code == 1);
  CHECK_THAT(said.err, Catch::Contains(taken.text()) && Catch::Contains("in use") && Catch::Contains("--page"));
  CHECK(std::count(said.err.begin(), said.err.end(), '\n') == 1);
  CHECK(!fs::exists(folder.file("run")));
}

TEST_CASE("only a training has a page", "[cli]") {
  const TempFolder folder;
  CHECK(call_ddhost(toy(folder.file("run"), {"--page", "[::1]:0", "--dry-run"})).code == 0);  // it begins as JSON does
  const Said dry = call_ddhost(toy(folder.file("run"), {"--page", "127.0.0.1:0", "--dry-run"}));
  CHECK(dry.code == 0);
  CHECK_THAT(dry.err, !Catch::Contains("http://"));
  REQUIRE(call_ddhost(toy(folder.file("run"), {"train.save_final=" + folder.file("w.safetensors")})).code == 0);
  const Said eval = call_ddhost({"eval", "--model", toy_model(), "--nproc", "2", "--weights",
                                 folder.file("w.safetensors"), "monitor.page=127.0.0.1:0"});
  INFO(eval.err);
  CHECK(eval.code == 0);
  CHECK_THAT(eval.err, !Catch::Contains("http://"));
  CHECK(call_ddhost({"eval", "--model", toy_model(), "--page", "127.0.0.1:0"}).code == 2);
  for (const Words& words : {toy(folder.file("other"), {"--dry-run", "monitor.page=0.0.0.0:80"}),
                             Words{"eval", "--model", toy_model(), "--weights", folder.file("w.safetensors"),
                                   "monitor.page=nonsense"}}) {  // a bad address is refused there too
    const Said said = call_ddhost(words);
    INFO(said.err);
    CHECK(said.code == 1);
    CHECK_THAT(said.err, Catch::Contains("monitor.page (--page) '"));
  }
}
