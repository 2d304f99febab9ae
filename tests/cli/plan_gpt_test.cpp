// SPDX-License-Identifier: Apache-2.0
//
// `ddhost plan` of models and worlds that no test machine has.
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost::test;
using nlohmann::json;

namespace {

json plan(const Words& words) {
  const Said said = call_ddhost(words);
  INFO(said.err);
  REQUIRE(said.code == 0);
  return json::parse(said.out);
}

}  // namespace

TEST_CASE("512 ranks of a model of 65 billion parameters are planned within seconds", "[cli]") {
  const auto begin = std::chrono::steady_clock::now();
  const json planned =
      plan({"plan", "--json", "--model", "gpt", "--strategy", "zero3", "--nproc", "512", "precision.compute=bf16",
            "model.size=custom", "model.n_layer=80", "model.n_head=64", "model.n_embd=8192", "model.vocab=32000",
            "model.context=2048", "data.micro_batch=1", "train.recompute=1", "--memory", "80GiB"});
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  const json& one = planned.at("plans").at(0);
  const auto n_params = one.at("parameters").get<double>();
  CHECK(n_params > 64e9);
  CHECK(one.at("ranks_planned") == 512);
  CHECK(one.at("fits") == true);
  const auto optim = one.at("largest_rank").at("optim").get<double>();
  CHECK(std::abs(optim / (12 * n_params / 512) - 1) < 0.01);  // master and two moments, of 4 bytes each
  CHECK(taken.count() < 10);                                  // it takes one; the machine may be busy
}

TEST_CASE("shorter samples leave the parameters as they are, and take less memory", "[cli]") {
  const Words words = {"plan", "--json", "--model", "gpt", "model.size=gpt2", "--nproc", "2", "data.micro_batch=1"};
  const json whole = plan(words).at("plans").at(0);
  Words brief_words = words;
  brief_words.emplace_back("model.short_context=128");
  const json brief = plan(brief_words).at("plans").at(0);
  CHECK(brief.at("parameters") == whole.at("parameters"));
  CHECK(brief.at("largest_rank").at("param") == whole.at("largest_rank").at("param"));
  CHECK(brief.at("largest_rank").at("act").get<double>() * 4 < whole.at("largest_rank").at("act").get<double>());
}

TEST_CASE("a plan names the gradients that come in blocks", "[cli]") {
  Words words = {"plan",
                 "--json",
                 "--model",
                 "gpt",
                 "--nproc",
                 "4",
                 "model.size=custom",
                 "model.n_layer=2",
                 "model.n_head=2",
                 "model.n_embd=64",
                 "model.vocab=50304",
                 "model.context=64",
                 "model.tied=false"};
  words.insert(words.end(), {"--strategy", "zero1"});
  CHECK(plan(words).at("plans").at(0).at("gradients_in_blocks").empty());
  words.back() = "zero2";
  const json in_blocks = plan(words).at("plans").at(0).at("gradients_in_blocks");
  CHECK(in_blocks.size() == 2);  // the embedding and the head
  CHECK(std::find(in_blocks.begin(), in_blocks.end(), "lm_head.weight") != in_blocks.end());
  words.erase(words.begin() + 1);
  CHECK_THAT(call_ddhost(words).out, Catch::Contains("which no rank has whole: ") && Catch::Contains("lm_head.weight"));
}

TEST_CASE("a limit of addresses that is too small for the libraries is named", "[cli]") {
  const uint64_t megabytes = GENERATE(200, 300, 400, 500);
  const TempFolder folder;
  Process process({"--model", "gpt", "--nproc", "1", "train.steps=1", "run.dir=" + folder.file("run")}, [&] {
    const rlimit limit{megabytes << 20, megabytes << 20};
    setrlimit(RLIMIT_AS, &limit);
  });
  const int code = process.wait(std::chrono::seconds(60));
  INFO(megabytes << " MiB: " << process.err());
  CHECK(code == 1);
  CHECK_THAT(process.err(), Catch::Contains("ulimit -v"));
}

TEST_CASE("sizes of a model are planned in one table", "[cli]") {
  const json planned = plan({"plan", "--json", "--model", "gpt", "--nproc", "2", "--sizes", "all"});
  std::map<std::string, uint64_t> parameters;
  for (const json& one : planned.at("plans")) parameters[one.at("size")] = one.at("parameters").get<uint64_t>();
  CHECK(parameters.size() >= 6);
  CHECK(parameters.count("custom") == 0);
  CHECK(parameters.at("gpt2") < parameters.at("gpt2-xl"));
  const json two =
      plan({"plan", "--json", "--model", "gpt", "--nproc", "2", "--sizes", "gpt2,gpt2-medium", "data.micro_batch=4"});
  CHECK(two.at("plans").size() == 2);
  const Said unknown = call_ddhost({"plan", "--model", "gpt", "--sizes", "gpt2,small", "--nproc", "2"});
  CHECK(unknown.code == 1);
  CHECK_THAT(unknown.err, Catch::Contains("model.size") && Catch::Contains("small"));
}
