// SPDX-License-Identifier: Apache-2.0
//
// run.known_curve: what a run says of the documented losses of its configuration.
#include <fstream>
#include <nlohmann/json.hpp>

#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;
using Catch::Contains;
using nlohmann::json;

namespace {

class Documented {
 public:
  Documented() {
    REQUIRE(run("first", {}).code == 0);
    const json config = json::parse(read_text(folder_.file("first/config.json")));
    for (const json& step : read_run(folder_.path() / "first").steps) curve_["losses"].push_back(step["loss"]);
    curve_["noise"] = std::vector<double>(curve_["losses"].size(), 1e-9);
    curve_["options"] = {{"optimizer.lr", config["optimizer"]["lr"]},
                         {"run.seed", 1337},
                         {"train.steps", 6},
                         {"samples of a step", config["data"]["micro_batch"].get<int64_t>() * 2}};
  }
  [[nodiscard]] Said run(const std::string& name, const Words& more) const {
    return call_ddhost(joined({"--model", toy_model(), "--nproc", "2", "train.steps=6", "run.sample_tokens=0",
                               "run.dir=" + folder_.file(name)},
                              more));
  }
  // What a run says that is compared with `curve`.
  [[nodiscard]] std::string compared(const json& curve, const Words& more = {}) {
    std::ofstream(folder_.file("curve.json")) << curve.dump();
    const Said said =
        run("run-" + std::to_string(++count_), joined({"run.known_curve=" + folder_.file("curve.json")}, more));
    INFO(said.err);
    CHECK(said.code == 0);
    return said.err;
  }
  [[nodiscard]] const json& curve() const { return curve_; }

 private:
  TempFolder folder_;
  json curve_;
  int count_ = 0;
};

}  // namespace

TEST_CASE("a run with the documented losses says so, also under another strategy", "[curve]") {
  Documented documented;
  for (const std::string strategy : {"ddp", "zero3"})
    CHECK_THAT(documented.compared(documented.curve(), {"--strategy", strategy}),
               Contains("step 6: loss ") && Contains("documented ") &&
                   Contains("same bits in all 6 documented steps") && !Contains("other than"));
}

TEST_CASE("a run says where it left the noise, and with which options it differs", "[curve]") {
  Documented documented;
  const std::string left = documented.compared(documented.curve(), {"optimizer.lr=0.02", "data.micro_batch=3"});
  CHECK_THAT(left, Contains("it left the noise at step ") && Contains("other than in the documented run: ") &&
                       Contains("optimizer.lr") && Contains("samples of a step") && !Contains("run.seed"));
  json near = documented.curve();
  near["losses"][3] = near["losses"][3].get<double>() + 5e-10;
  CHECK_THAT(documented.compared(near), Contains("within the noise; other bits from step 4 on"));
  near["losses"][4] = near["losses"][4].get<double>() + 1;
  CHECK_THAT(documented.compared(near), Contains("it left the noise at step 5"));
}

TEST_CASE("a curve of some steps is compared at these", "[curve]") {
  Documented documented;
  json few = documented.curve();
  few["steps"] = {2, 5};
  for (const char* list : {"losses", "noise"}) few[list] = {documented.curve()[list][1], documented.curve()[list][4]};
  CHECK_THAT(documented.compared(few), Contains("step 5: loss ") && Contains("same bits in all 2 documented steps"));
  few["losses"][1] = few["losses"][1].get<double>() + 1;
  CHECK_THAT(documented.compared(few), Contains("it left the noise at step 5"));
}

TEST_CASE("a file that holds no curve is a warning, and the run trains", "[curve]") {
  Documented documented;
  json broken = documented.curve(), steps = documented.curve();
  broken["noise"].erase(0);
  steps["steps"] = {1, 2};
  for (const json& file :
       {broken, steps, json("text"), json{{"losses", {1, "x"}}, {"noise", {1, 2}}, {"options", json::object()}}})
    CHECK_THAT(documented.compared(file), Contains("can't be used, so the losses are not compared"));
  CHECK_THAT(documented.run("none", {"run.known_curve=/none/curve.json"}).err,
             Contains("/none/curve.json") && Contains("are not compared"));
}
