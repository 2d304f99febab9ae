// SPDX-License-Identifier: Apache-2.0
//
// The options of a sampler: the toy model's tokens depend on temperature, top_k, seed and condition.
#include <catch2/catch.hpp>

#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost::test;

namespace {

// The last line of a run: its tokens.
std::string tokens_of(std::vector<std::string> options) {
  const TempFolder folder;
  options.insert(options.end(), {"--model", toy_model(), "--nproc", "2", "train.steps=2", "model.sampler=true",
                                 "run.sample_tokens=12", "run.dir=" + folder.file("run")});
  Process process(options);
  const int code = process.wait();
  INFO(process.command() << "\n" << process.err());
  REQUIRE(code == 0);
  const std::string out = process.out();
  const size_t begin = out.find("tokens");
  REQUIRE(begin != std::string::npos);
  return out.substr(begin, out.find('\n', begin) - begin);
}

}  // namespace

TEST_CASE("a sampler with temperature 0 takes the most likely item, for any seed", "[cli]") {
  const std::string greedy = tokens_of({"run.sample_temperature=0"});
  CHECK(tokens_of({"run.sample_temperature=0", "run.sample_top_k=5"}) == greedy);
  CHECK(tokens_of({"run.sample_top_k=1"}) == greedy);
}

TEST_CASE("a sampler draws from all items by default, from fewer with top_k", "[cli]") {
  const std::string all = tokens_of({});
  CHECK(tokens_of({"run.sample_temperature=1", "run.sample_top_k=0"}) == all);
  CHECK(tokens_of({"run.sample_top_k=31"}) == all);  // of 31 tokens
  CHECK(tokens_of({"run.sample_top_k=2"}) != all);
  CHECK(tokens_of({"run.sample_temperature=0.2"}) != all);
}

TEST_CASE("a sampler uses the sample of run.sample_condition", "[cli]") {
  const std::string none = tokens_of({"run.sample_condition=null"}), some = tokens_of({"run.sample_condition=5"});
  CHECK(none.starts_with("tokens 0 "));
  CHECK(some.starts_with("tokens 12 "));  // the token of sample 5
  CHECK(tokens_of({"run.sample_condition=0"}) != none);
}
