// SPDX-License-Identifier: Apache-2.0
//
// Data at the limits of the GPT: data that it can't train on is refused in one sentence that names the file and the
// fix.
#include <sys/stat.h>

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
  check_refused({"data.path=" + folder.file("wide.bin"), "model.vocab=1000"}, {"wide.bin", "61166", "model.vocab"});
}

TEST_CASE("data that is no regular file, or of two kinds, is refused by its name and key", "[cli]") {
  const TempFolder folder;
  const std::string fifo = folder.file("fifo"), text = folder.file("text.txt"), tokens = folder.file("tokens.bin");
  mkfifo(fifo.c_str(), 0644);
  std::ofstream(text) << std::string(4000, 'a') << "bc";
  std::ofstream(tokens, std::ios::binary) << std::string(4000, '\1');
  for (const std::string& path : {fifo, std::string("/dev/zero")}) {
    check_refused({"data.path=" + path}, {path, "not a regular file", "data.path"});
    check_refused({"data.path=" + text, "data.val_path=" + path}, {path, "not a regular file", "data.val_path"});
  }
  std::filesystem::create_directory(folder.file("x.bin"));
  check_refused({"data.path=" + folder.file("x.bin")}, {"x.bin", "not a regular file but a folder"});
  check_refused({"data.path=" + text, "data.val_path=" + tokens}, {text, tokens, "same kind"});
  check_refused({"data.path=" + tokens, "data.val_path=" + text}, {text, tokens, "same kind"});
  // An empty file left the run without an evaluation.
  std::ofstream(folder.file("empty.txt"));
  check_refused({"data.path=" + text, "data.val_path=" + folder.file("empty.txt")}, {"empty.txt", "too short"});
}

// The ranks were killed by signal 7, and the file was not named.
TEST_CASE("a token file that is cut short while a run reads it is named", "[cli]") {
  const TempFolder folder;
  const std::string tokens = folder.file("tokens.bin"), run = folder.file("run");
  std::ofstream(tokens, std::ios::binary) << std::string(4'000'000, '\1');
  Process process({"--model", "gpt", "--nproc", "2", "data.path=" + tokens, "model.n_layer=1", "model.n_embd=32",
                   "model.n_head=2", "model.context=16", "model.vocab=300", "train.steps=100000000", "run.quiet=true",
                   "run.dir=" + run});
  std::error_code ec;
  for (int i = 0; i < 6000 && (std::filesystem::file_size(run + "/metrics.jsonl", ec) == 0 || ec); ++i) usleep(10'000);
  std::filesystem::resize_file(tokens, 0);
  const int code = process.wait(std::chrono::seconds(30));
  INFO(process.command() << "\nexit " << code << "\n" << process.err());
  CHECK(code == 1);
  CHECK_THAT(process.err(), Catch::Contains(tokens) && Catch::Contains("cut short"));
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

// The ids of characters are their places in the sorted alphabet, so the shapes of the weights fit, and results were wrong.
TEST_CASE("weights and checkpoints of a text with other characters are used with a warning that names both", "[cli]") {
  const TempFolder folder;
  const std::string weights = folder.file("w.safetensors"), dir = folder.file("run");
  const std::string mine = folder.file("mine.txt"), same = folder.file("same.txt"), other = folder.file("other.txt");
  const auto repeated = [](const std::string& file, const std::string& words) {
    std::ofstream out(file);
    for (int i = 0; i < 50; ++i) out << words;
  };
  repeated(mine, "abcab"), repeated(same, "cbaac"), repeated(other, "abxab");
  const auto warnings = [&](std::vector<std::string> words, const std::string& text) {
    for (const char* word : {"--model", "gpt", "--nproc", "2", "model.n_layer=1", "model.n_embd=16", "model.n_head=2",
                             "model.context=8", "data.micro_batch=2"})
      words.emplace_back(word);
    words.push_back("data.path=" + text);
    Process process(words);
    const int code = process.wait(std::chrono::seconds(60));
    const std::string err = process.err();
    INFO(process.command() << "\n" << err);
    REQUIRE(code == 0);
    size_t n = 0;
    for (size_t at = 0; (at = err.find("this run's data stand for", at)) != std::string::npos; ++at) ++n;
    if (n > 0) CHECK_THAT(err, Catch::Contains("3 characters: abc") && Catch::Contains("3 characters: abx"));
    return n;
  };
  const std::vector<std::string> train = {"train", "run.dir=" + dir, "run.sample_tokens=0", "run.quiet=true"};
  const auto with = [](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  CHECK(warnings(with(train, {"train.steps=2", "checkpoint.every=2", "--save-final", weights}), mine) == 0);
  const std::string step = dir + "/checkpoints/step-2", exported = folder.file("exported");
  Process exporting({"export", step, exported});
  REQUIRE(exporting.wait(std::chrono::seconds(60)) == 0);
  for (const std::string& file : {weights, step, step + "/model.safetensors", exported}) {
    CHECK(warnings({"eval", "--weights", file}, same) == 0);
    CHECK(warnings({"eval", "--weights", file}, other) == 1);
  }
  CHECK(warnings({"generate", "--length", "4", "--weights", weights}, other) == 1);
  const std::vector<std::string> resume = {"train.steps=3", "--resume", step, "--resume-allow",
                                           "data.path,train.steps,schedule.decay_steps"};
  CHECK(warnings(with(train, resume), same) == 0);
  CHECK(warnings(with(train, resume), other) == 1);
  // The path is the same, and the file behind it another.
  repeated(mine, "abxab");
  CHECK(warnings(with(train, resume), mine) == 1);
}
