// SPDX-License-Identifier: Apache-2.0
//
// profile.steps: tables of time by unit and by operation, at the end of a run and in profile.json.
#include <nlohmann/json.hpp>

#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;
using Catch::Contains;

namespace {

Said profiled(const TempFolder& folder, const Words& more) {
  return call_ddhost(joined(
      {"--model", toy_model(), "--nproc", "2", "run.sample_tokens=0", "train.steps=8", "run.dir=" + folder.file("run")},
      more));
}
nlohmann::json profile_of(const TempFolder& folder) {
  return nlohmann::json::parse(read_text(folder.file("run/profile.json")));
}

}  // namespace

TEST_CASE("a profile holds the time, the calls and the bytes of its steps alone", "[profile]") {
  for (const std::string strategy : {"ddp", "zero3"}) {
    const TempFolder folder;
    const Said said = profiled(folder, {"--strategy", strategy, "profile.steps=3-6", "train.recompute=1"});
    INFO(said.err);
    REQUIRE(said.code == 0);
    CHECK_THAT(said.out, Contains("profile of steps 3 to 6") && Contains("all units") && Contains("recompute") &&
                             Contains("all_gather, decide") && Contains("profile.json"));
    const nlohmann::json profile = profile_of(folder);
    CHECK(profile["first_step"] == 3);
    CHECK(profile["steps"] == 4);
    double forward = 0, backward = 0, parts = 0;
    for (const nlohmann::json& unit : profile["units"]) {
      forward += unit["forward"]["ms"].get<double>() + unit["recompute"]["ms"].get<double>();
      backward += unit["backward"]["ms"].get<double>();
      CHECK(unit["forward"]["calls"] == 4);
      CHECK(unit["ms_of_ranks"].size() == 2);
      CHECK(unit["ms_of_ranks"][0] == unit["ms"]);
    }
    for (const auto& [name, ms] : profile["parts_ms"].items()) parts += ms.get<double>();
    CHECK(forward == Approx(profile["parts_ms"]["forward"].get<double>()));
    CHECK(backward == Approx(profile["parts_ms"]["backward"].get<double>()));
    CHECK(parts == Approx(profile["ms"].get<double>()));
    uint64_t sent = 0, decisions = 0;
    for (const nlohmann::json& operation : profile["operations"]) {
      sent += operation["bytes_sent"].get<uint64_t>();
      if (operation["operation"] == "all_gather, decide") decisions = operation["calls"].get<uint64_t>();
    }
    CHECK(decisions == 4);
    const RunRecord run = read_run(folder.path() / "run");
    CHECK(sent * 2 == run.summary["counters"]["comm.sent_bytes"].get<uint64_t>());  // 4 of 8 equal steps
    const TempFolder other;
    REQUIRE(profiled(other, {"--strategy", strategy, "train.recompute=1"}).code == 0);
    CHECK(run.column("loss") == read_run(other.path() / "run").column("loss"));
    CHECK_FALSE(std::filesystem::exists(other.file("run/profile.json")));
  }
}

TEST_CASE("--profile takes five steps behind the first two, and what a short run has", "[profile]") {
  const TempFolder folder;
  REQUIRE(profiled(folder, {"--profile"}).code == 0);
  CHECK(profile_of(folder)["first_step"] == 3);
  CHECK(profile_of(folder)["steps"] == 5);
  const TempFolder small;
  REQUIRE(profiled(small, {"--profile", "train.steps=2", "run.quiet=true"}).code == 0);
  CHECK(profile_of(small)["first_step"] == 1);
  CHECK(profile_of(small)["steps"] == 2);
  const TempFolder one;
  REQUIRE(profiled(one, {"--profile", "profile.steps=7"}).code == 0);
  CHECK(profile_of(one)["first_step"] == 7);
  CHECK(profile_of(one)["steps"] == 1);
}

TEST_CASE("profile.steps that are none, or outside of the run, are one sentence", "[profile]") {
  for (const char* steps : {"5-3", "x", "-3", "3-", "0-2", "1-2-3", "99999999999999999999", "3 - 4"})
    check_refused(toy_run({"profile.steps=" + std::string(steps)}),
                  {"profile.steps='" + std::string(steps) + "' names no steps"});
  for (const char* steps : {"3-99", "20-25"})
    check_refused(toy_run({"train.steps=12", "profile.steps=" + std::string(steps)}),
                  {"is not within the run, which trains steps 1 to 12"});
}

TEST_CASE("a run that is resumed with its own configuration measures what is left", "[profile]") {
  const TempFolder folder;
  REQUIRE(profiled(folder, {"profile.steps=2-3", "checkpoint.every=4"}).code == 0);
  const Said more = call_ddhost({"--config", folder.file("run/config.json"), "--resume", "auto", "--resume-allow",
                                 "train.steps", "train.steps=10"});
  INFO(more.err);
  CHECK(more.code == 0);
}
