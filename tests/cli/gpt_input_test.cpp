// SPDX-License-Identifier: Apache-2.0
//
// Data at the limits of the GPT: data that it can't train on is refused in one sentence that names the file and the
// fix.
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>

#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost::test;

namespace {

void check_refused(std::vector<std::string> args, const std::vector<std::string>& words) {
  const TempFolder folder;
  args.insert(args.end(),
              {"--model", "gpt", "--nproc", "2", "train.steps=2", "run.quiet=true", "run.dir=" + folder.file("run")});
  Process process(args);
  const int code = process.wait(std::chrono::seconds(60));
  INFO(process.command() << "\nexit " << code << "\n" << process.err());
  CHECK(code > 0);
  CHECK(code < 128);
  const std::string err = process.err();
  for (const std::string& word : words) CHECK_THAT(err, Catch::Contains(word));
  CHECK(std::count(err.begin(), err.end(), '\n') <= 2);
}

}  // namespace

TEST_CASE("a text that is missing, empty or too short is refused", "[cli]") {
  const TempFolder folder;
  check_refused({"data.path=" + folder.file("none.txt")}, {"none.txt", "does not exist"});
  check_refused({"data.path=" + folder.path().string()}, {folder.path().string()});
  std::ofstream(folder.file("empty.txt"));
  check_refused({"data.path=" + folder.file("empty.txt")}, {"empty.txt", "empty"});
  std::ofstream(folder.file("short.txt")) << "to be, or not to be";
  check_refused({"data.path=" + folder.file("short.txt")}, {"short.txt", "too short", "model.context"});
}

TEST_CASE("a token file with half a token or a token beyond the vocabulary is refused", "[cli]") {
  const TempFolder folder;
  std::ofstream(folder.file("odd.bin"), std::ios::binary) << std::string(1001, 'x');
  check_refused({"data.path=" + folder.file("odd.bin")}, {"odd.bin", "1001"});
  std::ofstream(folder.file("wide.bin"), std::ios::binary) << std::string(4000, '\xee');
  check_refused({"data.path=" + folder.file("wide.bin"), "model.vocab=1000"}, {"61166", "model.vocab"});
}

TEST_CASE("an impossible model is refused", "[cli]") {
  check_refused({"model.n_head=5"}, {"n_head", "n_embd"});
  check_refused({"model.size=gpt3"}, {"gpt3", "gpt2-xl"});
}

TEST_CASE("a short last step of an epoch trains, although a rank has no sample", "[cli]") {
  const TempFolder folder;
  std::ofstream(folder.file("text.txt")) << "to be, or not to be, that is";  // 28 tokens: 20 samples of 8
  std::vector<std::string> losses;
  for (const char* strategy : {"ddp", "zero3"}) {
    const std::string run_dir = folder.file(strategy);
    Process process({"--strategy", strategy, "--nproc", "2", "data.path=" + folder.file("text.txt"),
                     "data.val_fraction=0", "data.drop_last=false", "data.micro_batch=9", "model.context=8",
                     "train.steps=2", "run.sample_tokens=0", "run.quiet=true", "run.dir=" + run_dir});
    const int code = process.wait(std::chrono::seconds(60));
    INFO(process.command() << "\n" << process.err());
    REQUIRE(code == 0);
    losses.push_back(read_run(run_dir).column("loss"));
  }
  CHECK(std::count(losses[0].begin(), losses[0].end(), '\n') == 2);
  CHECK(losses[0] == losses[1]);
}
