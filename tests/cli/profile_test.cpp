// SPDX-License-Identifier: Apache-2.0
//
// profile.steps: tables of time by part of a step, by unit and by operation, at the end of a run and in profile.json; and a
// trace of each rank.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "fixtures/harness/processes.hpp"
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

using Events = std::vector<nlohmann::json>;

nlohmann::json trace_of(const TempFolder& folder, const std::string& steps, int rank) {
  return nlohmann::json::parse(
      read_text(folder.file("run/trace-steps-" + steps + "-rank-" + std::to_string(rank) + ".json")));
}
Events complete_events(const nlohmann::json& trace) {
  Events out;
  for (const nlohmann::json& event : trace["traceEvents"])
    if (event["ph"] == "X") out.push_back(event);
  return out;
}
// Nanoseconds, because ends are begins plus lengths.
std::pair<int64_t, int64_t> interval(const nlohmann::json& event) {
  const double begin = event["ts"].get<double>();
  return {std::llround(begin * 1e3), std::llround((begin + event["dur"].get<double>()) * 1e3)};
}
constexpr int64_t kRounding = 200;  // a double holds the microseconds of a clock to some nanoseconds

// The spans of a thread are within each other, or apart.
void check_nested(Events events) {
  std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) {
    const auto [a_begin, a_end] = interval(a);
    const auto [b_begin, b_end] = interval(b);
    return a_begin != b_begin ? a_begin < b_begin : a_end > b_end;
  });
  std::vector<std::pair<int64_t, int64_t>> open;
  for (const nlohmann::json& event : events) {
    const auto [begin, end] = interval(event);
    while (!open.empty() && open.back().second <= begin + kRounding) open.pop_back();
    INFO(event.dump());
    CHECK((open.empty() || end <= open.back().second + kRounding));
    open.emplace_back(begin, end);
  }
}

}  // namespace

TEST_CASE("the parts of a step add up to its time, on every rank", "[profile]") {
  const TempFolder folder;
  const Said said = profiled(folder, {"--strategy", "zero3", "profile.steps=3-6", "train.recompute=1"});
  INFO(said.err << said.out);
  REQUIRE(said.code == 0);
  CHECK_THAT(said.out, Contains("where a step of rank 0 goes") && Contains("host's own share") && Contains("100.0"));
  const nlohmann::json profile = profile_of(folder), step = profile["step"];
  CHECK(step["ms"].get<double>() == Approx(profile["ms"].get<double>()).epsilon(1e-6));
  std::vector<double> of_ranks(2);
  double share = 0;
  std::map<std::string, double> ms;
  for (const nlohmann::json& part : step["parts"]) {
    INFO(part.dump());
    share += part["share"].get<double>();
    ms[part["part"]] += part["ms"].get<double>();
    for (size_t r = 0; r < 2; ++r) {
      const double one = part["ms_of_ranks"][r].get<double>();
      CHECK(one >= -1e-6);
      of_ranks[r] += one;
    }
    if (part.contains("for_rank") && part["for_rank"] == 0) CHECK(part["ms_of_ranks"][0] == 0);  // not for itself
  }
  CHECK(share == Approx(1).epsilon(1e-9));
  CHECK(of_ranks[0] == Approx(profile["ms"].get<double>()).epsilon(1e-6));
  // The rank's own spans say the same: the time of its steps is that of their parts.
  for (int rank = 0; rank < 2; ++rank) {
    double steps_ms = 0;
    for (const nlohmann::json& event : complete_events(trace_of(folder, "3-6", rank)))
      if (event["cat"] == "step") steps_ms += event["dur"].get<double>() / 1e3;
    CHECK(of_ranks[static_cast<size_t>(rank)] == Approx(steps_ms).epsilon(1e-4));
  }
  for (const char* part : {"forward", "backward", "recompute", "optimizer pass", "norm", "host's own share"}) {
    INFO(part);
    CHECK(ms[part] > 0);
  }
}

TEST_CASE("a trace has one span for each unit and phase of a step, and spans nest", "[profile]") {
  const TempFolder folder;
  REQUIRE(profiled(folder, {"--strategy", "zero3", "profile.steps=3-6", "train.recompute=1"}).code == 0);
  const nlohmann::json profile = profile_of(folder);
  for (int rank = 0; rank < 2; ++rank) {
    const nlohmann::json trace = trace_of(folder, "3-6", rank);
    CHECK(trace["otherData"]["traced_steps"] == 4);
    std::map<uint32_t, Events> threads;
    std::map<int64_t, std::pair<int64_t, int64_t>> steps;
    std::map<std::string, int> units;  // "forward unit 3"
    std::map<uint32_t, std::string> names;
    for (const nlohmann::json& event : trace["traceEvents"]) {
      CHECK(event["pid"] == rank);
      if (event["name"] == "thread_name") names[event["tid"]] = event["args"]["name"];
      if (event["name"] == "process_name") CHECK(event["args"]["name"] == "rank " + std::to_string(rank));
    }
    for (const nlohmann::json& event : complete_events(trace)) {
      threads[event["tid"]].push_back(event);
      if (event["cat"] == "step") steps[event["args"]["step"]] = interval(event);
      if (event["args"].contains("unit"))
        ++units[event["name"].get<std::string>() + " " + event["args"]["position"].dump() + " " +
                event["args"]["step"].dump()];
    }
    CHECK(names.at(0) == "main");
    CHECK(steps.size() == 4);
    size_t expected = 0;
    for (const nlohmann::json& unit : profile["units"])
      for (const char* phase : {"forward", "backward", "recompute"}) expected += unit[phase]["calls"].get<size_t>();
    CHECK(units.size() == expected);
    for (const auto& [what, times] : units) {
      INFO(what);
      CHECK(times == 1);
    }
    for (const auto& [thread, events] : threads) {
      INFO("thread " << thread << ", " << names.at(thread));
      check_nested(events);
      for (const nlohmann::json& event : events) {
        const auto [begin, end] = interval(event);
        const auto [step_begin, step_end] = steps.at(event["args"]["step"]);
        INFO(event.dump());
        CHECK(begin >= step_begin - kRounding);
        CHECK(end <= step_end + kRounding);
      }
    }
  }
}

TEST_CASE("a trace that exists is not overwritten", "[profile]") {
  const TempFolder folder;
  REQUIRE(profiled(folder, {"profile.steps=3-4", "checkpoint.every=2", "checkpoint.keep_last=0"}).code == 0);
  const std::string path = folder.file("run/trace-steps-3-4-rank-0.json"), before = read_text(path);
  // Resumed in its folder from before these steps, it would measure them again.
  REQUIRE(call_ddhost({"ckpt", "prune", folder.file("run"), "--after", "2"}).code == 0);
  const Said again = call_ddhost({"--config", folder.file("run/config.json"), "--resume",
                                  folder.file("run/checkpoints/step-2"), "run.dir=" + folder.file("run")});
  INFO(again.err);
  CHECK(again.code > 0);
  CHECK_THAT(again.err, Contains("exists already and is not overwritten") && Contains("trace-steps-3-4-rank-"));
  CHECK(read_text(path) == before);
  // A second run in the folder of the first is refused before that.
  const Said second = profiled(folder, {"profile.steps=3-4"});
  CHECK(second.code > 0);
  CHECK_THAT(second.err, Contains("already holds a run"));
}

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

TEST_CASE("blocks of gradients belong to the backward of their unit, and are no calls of their own", "[profile]") {
  const auto backwards = [](const Words& more) {
    const TempFolder folder;
    REQUIRE(profiled(folder,
                     joined({"--strategy", "zero2", "model.width=32", "model.hidden=32", "profile.steps=3-6"}, more))
                .code == 0);
    std::map<std::string, int> calls;
    const nlohmann::json profile = profile_of(folder);
    for (const nlohmann::json& unit : profile["units"])
      calls[unit["unit"].get<std::string>()] = unit["backward"]["calls"].get<int>();
    uint64_t reductions = 0;
    for (const nlohmann::json& operation : profile["operations"])
      if (operation["operation"] == "reduce") reductions = operation["calls"].get<uint64_t>();
    return std::pair{calls, reductions};
  };
  const auto [whole, reductions] = backwards({});
  const auto [blocks, reductions_of_blocks] = backwards({"model.grad_rows=4", "strategy.grad_buffer_bytes=2048"});
  CHECK(reductions_of_blocks > reductions);
  CHECK(blocks == whole);
  CHECK(whole.begin()->second == 4);
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
  const TempFolder given;
  REQUIRE(profiled(given, {"--profile=5-6", "profile.steps=7"}).code == 0);  // the flag wins
  CHECK(profile_of(given)["first_step"] == 5);
  CHECK(profile_of(given)["steps"] == 2);
  check_refused(toy_run({"--profile=x"}), {"profile.steps='x' (--profile) names no steps"});
}

TEST_CASE("profile.steps that are none, or outside of the run, are one sentence", "[profile]") {
  for (const char* steps : {"5-3", "x", "-3", "3-", "0-2", "1-2-3", "99999999999999999999", "3 - 4"})
    check_refused(toy_run({"profile.steps=" + std::string(steps)}),
                  {"profile.steps='" + std::string(steps) + "' names no steps"});
  for (const char* steps : {"3-99", "20-25"})
    check_refused(toy_run({"train.steps=12", "profile.steps=" + std::string(steps)}),
                  {"is not within the run, which trains steps 1 to 12"});
}

TEST_CASE("a run that is stopped names its trace by the steps that it measured, and goes on", "[profile]") {
  namespace fs = std::filesystem;
  const auto stopped = [](const TempFolder& folder, const std::string& steps) {
    constexpr std::chrono::seconds kLimit{120};
    Process run({"--model", toy_model(), "--nproc", "2", "run.sample_tokens=0", "train.steps=1000000",
                 "profile.steps=" + steps, "run.dir=" + folder.file("run")});
    REQUIRE(soon([&] { return std::ranges::count(read_text(folder.file("run/metrics.jsonl")), '\n') >= 20; }, kLimit));
    REQUIRE(kill(run.pid(), SIGINT) == 0);
    REQUIRE(run.wait(kLimit) == 128 + SIGINT);
    return run.out();
  };
  const auto last_step = [](const TempFolder& folder) { return read_run(folder.path() / "run").steps.back()["step"]; };
  const auto go_on = [](const TempFolder& folder, int64_t steps) {
    const Said said =
        call_ddhost({"--config", folder.file("run/config.json"), "--resume", "auto", "--resume-allow", "train.steps",
                     "train.steps=" + std::to_string(steps), "profile.steps=" + std::to_string(steps)});
    INFO(said.err);
    CHECK(said.code == 0);
  };
  const TempFolder before;  // the profiled steps
  CHECK_THAT(stopped(before, "999998-999999"), Contains("profile: the run ended before its step 999998"));
  CHECK_FALSE(fs::exists(before.file("run/profile.json")));
  CHECK_FALSE(fs::exists(before.file("run/trace-steps-999998-999999-rank-0.json")));
  go_on(before, last_step(before).get<int64_t>() + 3);
  CHECK(profile_of(before)["steps"] == 1);

  const TempFolder within;
  CHECK_THAT(stopped(within, "3-999999"), Contains("profile of steps 3 to ") && Contains("/profile.json"));
  const auto last = last_step(within).get<int64_t>();
  const nlohmann::json first = profile_of(within);
  CHECK(first["steps"] == last - 2);
  CHECK(trace_of(within, "3-" + std::to_string(last), 1)["otherData"]["measured_steps"] == last - 2);
  go_on(within, last + 3);
  CHECK(profile_of(within) == first);
  const nlohmann::json second = nlohmann::json::parse(read_text(within.file("run/profile-2.json")));
  CHECK(second["first_step"] == last + 3);
}

TEST_CASE("the tables of a profile never take the place of something else", "[profile]") {
  const TempFolder folder;
  std::filesystem::create_directories(folder.file("run/profile.json"));
  REQUIRE(profiled(folder, {"profile.steps=3-4"}).code == 0);
  CHECK(std::filesystem::exists(folder.file("run/profile-2.json")));
  CHECK(trace_of(folder, "3-4", 0)["otherData"]["traced_steps"] == 2);
}

TEST_CASE("a run that is resumed with its own configuration measures what is left", "[profile]") {
  const TempFolder folder;
  REQUIRE(profiled(folder, {"profile.steps=2-3", "checkpoint.every=4"}).code == 0);
  const Said more = call_ddhost({"--config", folder.file("run/config.json"), "--resume", "auto", "--resume-allow",
                                 "train.steps", "train.steps=10"});
  INFO(more.err);
  CHECK(more.code == 0);
  CHECK_THAT(more.err, Catch::Contains("profile.steps=2-3 is before step ") && Catch::Contains("no step is measured"));
}
