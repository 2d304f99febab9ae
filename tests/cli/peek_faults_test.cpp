// SPDX-License-Identifier: Apache-2.0
//
// `ddhost data peek` of models that show nothing, or show it wrongly.
#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;
using Catch::Contains;

namespace {

Said peek(const std::string& model, const Words& more = {}) {
  return call_ddhost(joined({"data", "peek", "--model", model, "--nproc", "2"}, more));
}

}  // namespace

TEST_CASE("peek says of a model that shows no samples that it does not", "[cli]") {
  const Said said = peek(toy_model());
  CHECK(said.code == 1);
  CHECK_THAT(said.err, Contains("model 'toy' does not show its samples"));
  CHECK(said.out.empty());
}

TEST_CASE("a model's text reaches the terminal without control characters", "[cli]") {
  for (const Words& form : {Words{}, Words{"--json"}}) {
    const Said said = peek(test_plugin("bad_model"), form);
    INFO(said.err);
    CHECK(said.code == 0);
    CHECK_THAT(said.out, Contains(form.empty() ? "a\\x1b]0" : "a\\u001b]0"));
    CHECK(said.out.find('\x1b') == std::string::npos);
  }
}

TEST_CASE("a model that shows its samples wrongly is named, with the call", "[cli]") {
  for (const char* fault : {"null_name", "null_data", "unknown_kind", "two_channels", "huge", "not_utf8",
                            "small_struct", "silent", "binary", "segv", "exit"}) {
    const Said said = peek(test_plugin("bad_model"), {"model.at=view", std::string("model.fault=") + fault});
    INFO(fault << ": exit " << said.code << "\n" << said.err);
    CHECK(said.code > 0);
    CHECK(said.out.empty());
    const bool is_large = fault == std::string("huge");  // which may be the user's wish
    CHECK_THAT(said.err, Contains(is_large ? "give fewer --samples" : "view"));
    CHECK(std::count(said.err.begin(), said.err.end(), '\n') <= 3);
  }
}

TEST_CASE("peek refuses numbers and folders that it can't use", "[cli]") {
  for (const auto& [words, says] : std::vector<std::pair<Words, std::string>>{
           {{"--epoch", "-1"}, "--epoch '-1'"},
           {{"--epoch", "one"}, "--epoch 'one'"},
           {{"--index", "4096"}, "give an index from 0 to 4095"},
           {{"--samples", "0"}, "--samples '0'"},
           {{"--program", "none"}, "give one of --program train"},
           {{"--epok", "1"}, "did you mean '--epoch'"},
           {{"data.drop_last=true", "data.micro_batch=1000", "--index", "4000"}, "data.drop_last"}}) {
    const Said said = peek(test_plugin("bad_model"), words);
    INFO(said.err);
    CHECK(said.code > 0);
    CHECK_THAT(said.err, Contains(says));
  }
  CHECK_THAT(call_ddhost({"data"}).err, Contains("data needs an action: peek"));
}

TEST_CASE("peek says that the run does not come to an epoch, and shows it all the same", "[cli]") {
  const Said within = peek(test_plugin("bad_model"), {"--epoch", "1", "train.epochs=2"});
  INFO(within.err);
  CHECK(within.code == 0);
  CHECK_THAT(within.err, !Contains("the run ends before"));
  for (const char* length : {"train.epochs=2", "train.steps=3"}) {
    const Said beyond = peek(test_plugin("bad_model"), {"--epoch", "3", length});
    INFO(beyond.err);
    CHECK(beyond.code == 0);
    CHECK_THAT(beyond.err, Contains("the run ends before epoch 3 (counted from 0) of program 'train'"));
    CHECK_THAT(beyond.out, Contains("epoch 3"));
  }
}
