// SPDX-License-Identifier: Apache-2.0
//
// Commands that look at something print one JSON document with --json, and nothing else on stdout.
#include <catch2/catch.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "cli/checkpoint_runs.hpp"
#include "fixtures/harness/built.hpp"
#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost::test;
using Json = nlohmann::json;

namespace {

Json json_of(const Words& words, int code = 0) {
  const Said said = call_ddhost(words, std::chrono::seconds(60));
  INFO(words.at(0) << "\n" << said.out << said.err);
  CHECK(said.code == code);
  const Json json = Json::parse(said.out, nullptr, /*allow_exceptions=*/false);
  REQUIRE(!json.is_discarded());
  return json;
}

}  // namespace

TEST_CASE("list, inspect and explain print JSON", "[cli]") {
  const Json strategies = json_of({"list", "strategies", "--json"});
  CHECK(strategies["not_usable"].empty());
  std::set<std::string> ids;
  for (const Json& one : strategies["plugins"]) {
    CHECK(one["kind"] == "strategy");
    CHECK(fs::exists(one["file"].get<std::string>()));
    ids.insert(one["id"]);
  }
  CHECK(ids.count("zero2") == 1);

  const Json zero2 = json_of({"inspect", "zero2", "--json"});
  CHECK(zero2["usable"] == true);
  REQUIRE(zero2["plugins"].size() == 1);
  CHECK(zero2["plugins"][0]["missing"].empty());
  const Json& options = zero2["plugins"][0]["options"];
  CHECK(std::any_of(options.begin(), options.end(), [](const Json& option) {
    return option["key"] == "strategy.grad_buffer_bytes" && option["unit"] == "bytes";
  }));
  const Json broken = json_of({"inspect", ddhost_program(), "--json"}, 1);
  CHECK(broken["usable"] == false);
  CHECK_THAT(broken["problem"].get<std::string>(), Catch::Contains("ddhost"));

  const Json option = json_of({"explain", "train.recompute", "--json"});
  REQUIRE(option.size() == 1);
  CHECK(option[0]["name"] == "train.recompute");
  for (const char* key : {"meaning", "values", "bytes", "time", "example"}) CHECK(option[0].contains(key));
}

TEST_CASE("explain knows what each option costs, and each known cost is that of an option", "[cli]") {
  for (const auto& [key, time] : {std::pair{"strategy.grad_buffer_bytes", "a lower value makes"},
                                  {"model.layers", "it grows in proportion"},
                                  {"run.name", "none"},
                                  {"optimizer.lr", "none"}}) {
    INFO(key);
    const Json one = json_of({"explain", key, "--json"});
    CHECK(!one[0].at("bytes").get<std::string>().empty());
    CHECK_THAT(one[0].at("time").get<std::string>(), Catch::StartsWith(time));
  }
  const Json costs = Json::parse(read_text(DDHOST_SOURCE_DIR "/plugins/names/costs.json"), nullptr,
                                 /*allow_exceptions=*/true, /*ignore_comments=*/true)
                         .at("costs");
  std::set<std::string> known = costs.at("none").get<std::set<std::string>>();
  for (const auto& [names, cost] : costs.at("option").items()) {
    std::istringstream words(names);
    for (std::string word; words >> word;) CHECK(known.insert(word).second);
  }
  const std::string page = read_text(DDHOST_SOURCE_DIR "/docs/options.md");
  for (const std::string& name : known) {  // a renamed option would leave its cost behind
    INFO(name);
    CHECK_THAT(page, Catch::Contains("`" + name + "`"));
  }
  const std::regex entry("\n- `(([a-z]+)\\.[^`]+)`");
  size_t entries = 0;
  for (auto at = std::sregex_iterator(page.begin(), page.end(), entry); at != std::sregex_iterator(); ++at, ++entries) {
    INFO((*at)[1].str());
    CHECK(known.count((*at)[1].str()) + known.count((*at)[2].str()) > 0);
  }
  CHECK(entries > 400);
}

TEST_CASE("actions on checkpoints print JSON", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", {"checkpoint.every=2", "checkpoint.keep_last=0"}).code == 0);
  const Json all = json_of({"ckpt", "ls", runs.dir("a"), "--json"});
  REQUIRE(all.size() == 3);
  CHECK(all[0]["step"] == 2);
  CHECK(all[2]["world_size"] == 2);
  CHECK(all[2]["bytes"] > 0);
  CHECK(json_of({"ckpt", "show", runs.dir("a"), "--json"})["progress"]["step"] == 6);
  CHECK(json_of({"ckpt", "verify", runs.step("a", 4), "--json"})[0]["is_whole"] == true);
  const Json same = json_of({"ckpt", "diff", runs.step("a", 4), runs.step("a", 4), "--json"});
  CHECK(same["differing"].empty());
  CHECK(same["steps"] == Json({4, 4}));
  const Json other = json_of({"ckpt", "diff", runs.step("a", 2), runs.step("a", 4), "--json"}, 1);
  CHECK(other["differing"][0]["elements"] > 0);
  flip_bit(runs.step("a", 2) + "/model.safetensors", fs::file_size(runs.step("a", 2) + "/model.safetensors") - 1);
  const Json damaged = json_of({"ckpt", "verify", runs.dir("a"), "--json"}, 1);
  CHECK(damaged[0]["is_whole"] == false);
  CHECK(damaged[1]["is_whole"] == true);
  CHECK(json_of({"ckpt", "prune", runs.dir("a"), "--keep-last", "1", "--json"})["removed"].size() == 2);
}

TEST_CASE("eval and smoke print JSON", "[cli]") {
  const Runs runs;
  REQUIRE(runs.train("a", {"--save-final", runs.dir("w.st")}).code == 0);
  const Words eval = {"eval", "--model", toy_model(), "run.quiet=true", "--nproc", "2", "--weights", runs.dir("w.st")};
  const Json values = json_of(joined(eval, {"--json"}));
  REQUIRE(values["programs"].size() >= 1);
  const double loss = values["programs"][0]["values"].begin().value();
  CHECK_THAT(call_ddhost(eval).out, Catch::Contains(values["programs"][0]["values"].begin().key()));
  CHECK(loss > 0);

  const Json smoke = json_of({"smoke", "--model", toy_model(), "--nproc", "2", "--json", "--out", runs.dir("smoke")});
  CHECK(smoke["is_ok"] == true);
  CHECK(smoke["parts"].size() == 5);
  for (const Json& part : smoke["parts"]) CHECK(part["seconds"] > 0);
  const Json failed = json_of(
      {"smoke", "--model", toy_model(), "--nproc", "2", "--json", "optimizer.lr=-1", "--out", runs.dir("failed")}, 1);
  CHECK(failed["is_ok"] == false);
  CHECK_THAT(failed["sentence"].get<std::string>(), Catch::Contains("lr"));
}
