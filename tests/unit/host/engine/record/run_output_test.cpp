// SPDX-License-Identifier: Apache-2.0
//
// The rows that a run gives its monitors: their order and values, and a monitor that fails.
#include "engine/record/run_output.hpp"

#include <spdlog/sinks/ostream_sink.h>
#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/host_services.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;
using namespace ddhost::test;

namespace {

// Two monitors in this program, "a" and "b", which note their calls in one list.
struct Recorded {
  std::vector<std::string> calls;
  std::vector<std::pair<std::string, double>> values;  // of the last row
  std::string fails;                                   // the call that fails: "b row 2"
};
Recorded& recorded() {
  static Recorded all;
  return all;
}

struct OneMonitor {
  std::string id;
  ddh_rc note(const std::string& what, ddh_err* err) const {
    recorded().calls.push_back(id + " " + what);
    if (recorded().calls.back() != recorded().fails) return DDH_OK;
    return ddh_fail(err, DDH_RESOURCE_EXHAUSTED, "the disk is full");
  }
};
const OneMonitor& monitor_of(ddh_inst* inst) { return *reinterpret_cast<const OneMonitor*>(inst); }

const ddh_monitor_api kMonitorTable = {
    sizeof(ddh_monitor_api),
    0,
    [](ddh_inst* inst, const ddh_monitor_args* args, ddh_err* err) noexcept {
      return monitor_of(inst).note(ddh::str("begin after ", args->resumed_after), err);
    },
    [](ddh_inst* inst, const ddh_row* row, ddh_err* err) noexcept {
      recorded().values.clear();
      for (uint32_t i = 0; i < row->n_values; ++i)
        recorded().values.emplace_back(row->values[i].name, row->values[i].value);
      return monitor_of(inst).note(ddh::str(row->kind == DDH_ROW_STEP ? "row " : "evaluation ", row->step), err);
    },
    [](ddh_inst* inst, const char* summary, ddh_err* err) noexcept {
      return monitor_of(inst).note(ddh::str("end ", summary), err);
    },
    [](ddh_inst* inst, const ddh_event* event, ddh_err* err) noexcept {
      constexpr const char* kKinds[] = {"?", "resumed", "checkpoint", "failed"};
      return monitor_of(inst).note(ddh::str(kKinds[event->kind], ' ', event->step, ' ', event->text), err);
    }};

ddh_desc desc_of(const char* id) {
  ddh_desc desc{};
  desc.struct_size = sizeof desc;
  desc.kind = DDH_KIND_MONITOR;
  desc.id = id;
  return desc;
}
const ddh_desc kA = desc_of("a"), kB = desc_of("b");
const ddh_desc* const kDescs[] = {&kA, &kB};
const ddh_module kModule = {sizeof(ddh_module),
                            2,
                            kDescs,
                            nullptr,
                            [](const ddh_create* args, ddh_inst** out, ddh_err*) noexcept -> ddh_rc {
                              *out = reinterpret_cast<ddh_inst*>(new OneMonitor{args->id});
                              return DDH_OK;
                            },
                            [](ddh_inst*, const char* id) noexcept -> const void* {
                              return std::string_view(id) == DDH_MONITOR_IFACE ? &kMonitorTable : nullptr;
                            },
                            [](ddh_inst* inst) noexcept { delete &monitor_of(inst); }};

// A rank 0 with the two monitors, in a folder of its own.
struct MonitoredRun {
  explicit MonitoredRun(int64_t every = 1, int64_t resumed_after = 0) : host("monitor:test") {
    recorded() = {};
    host.config().set("monitor.every", every, "test");
    host.config().set("monitor.progress", "off", "test");
    host.config().set("run.quiet", true, "test");
    for (const char* key : {"profile.steps", "run.known_curve"}) host.config().set(key, "", "test");
    std::ofstream(folder.file(kRunLock)) << "";
    output.emplace(host.services, plugins, folder.path().string(), "samples", StepNumbers{resumed_after, resumed_after},
                   4, std::make_shared<TerminalLine>());
  }
  void step(int64_t number, double loss, const std::string& nonfinite = "") {
    output->step_begin(number);
    ddh_step_block block{};
    block.struct_size = sizeof block;
    block.step = number;
    block.lr = 0.5;
    block.loss_scale = 8;
    block.grad_norm = 2;
    StepOutcome outcome;
    outcome.world.items = 24;
    outcome.nonfinite = nonfinite;
    const ReportedValue values[] = {{"loss", loss}, {"accuracy", 0.25}};
    output->step_end(block, outcome, {values, "", 12, {0, 3}, {}, output->step_ms()});
  }
  void evaluated(int64_t number) {
    const ReportedValue values[] = {{"loss", 0.75}};
    output->evaluated(number, values, "");
  }

  TempFolder folder;
  HostServices host;
  const std::vector<Plugin> plugins = {{&kModule, &kA, "a.so"}, {&kModule, &kB, "b.so"}};
  std::optional<RunOutput> output;
};

double value(const std::string& name) {
  for (const auto& [its_name, its_value] : recorded().values)
    if (its_name == name) return its_value;
  FAIL("the row has no " << name);
  return 0;
}

using Calls = std::vector<std::string>;

}  // namespace

TEST_CASE("every monitor gets every row, in the order of the run, and the summary last", "[monitor]") {
  MonitoredRun run;
  run.output->begin(/*epoch_samples=*/100);
  run.step(1, 4);
  run.evaluated(1);
  run.step(2, 3);
  run.output->end("{}");
  CHECK(recorded().calls == Calls{"a begin after 0", "b begin after 0", "a row 1", "b row 1", "a evaluation 1",
                                  "b evaluation 1", "a row 2", "b row 2", "a end {}", "b end {}"});
  CHECK(run.output->failure().empty());
}

TEST_CASE("a row has the values of the model first, then those of the step", "[monitor]") {
  MonitoredRun run;
  run.output->begin(/*epoch_samples=*/100);
  run.step(1, 4);
  REQUIRE(recorded().values.size() >= 2);
  CHECK(recorded().values[0] == std::pair<std::string, double>("loss", 4));
  CHECK(recorded().values[1] == std::pair<std::string, double>("accuracy", 0.25));
  CHECK(value("grad_norm") == 2);
  CHECK(value("lr") == 0.5);
  CHECK(value("loss_scale") == 8);
  CHECK(value("skipped") == 0);
  CHECK(value("samples_per_s") == Approx(24e3 / value("step_ms")));
  run.evaluated(1);
  CHECK(recorded().values == std::vector<std::pair<std::string, double>>{{"val_loss", 0.75}});
  const auto& [kind, work] = *run.output->work().begin();
  CHECK(work.samples == 12);
}

TEST_CASE("monitor.every leaves out rows, but not that of the last step or of an early end", "[monitor]") {
  MonitoredRun run(3);
  run.output->begin(/*epoch_samples=*/100);
  for (int64_t step = 1; step <= 4; ++step) run.step(step, 1);
  CHECK(recorded().calls == Calls{"a begin after 0", "b begin after 0", "a row 3", "b row 3", "a row 4", "b row 4"});
  MonitoredRun early(3);
  early.output->begin(/*epoch_samples=*/100);
  early.step(1, 1);
  CHECK(recorded().calls.size() == 2);
  early.output->end("{}");
  CHECK(recorded().calls.at(2) == "a row 1");
}

TEST_CASE("a monitor that fails ends the run with its message, and the others get the rows until then", "[monitor]") {
  MonitoredRun run;
  recorded().fails = "b row 2";
  run.output->begin(/*epoch_samples=*/100);
  run.step(1, 1);
  CHECK(run.output->failure().empty());
  run.step(2, 1);
  CHECK_THAT(run.output->failure(), Catch::Contains("monitor 'b'") && Catch::Contains("the disk is full"));
  const size_t calls = recorded().calls.size();
  run.step(3, 1);
  run.evaluated(3);
  run.output->end("{}");
  REQUIRE(recorded().calls.size() == calls + 2);
  CHECK(recorded().calls.at(calls) == "a row 3");
  CHECK_THAT(recorded().calls.at(calls + 1), Catch::StartsWith("a "));
}

TEST_CASE("a monitor that can't open what it writes to is an error at the start", "[monitor]") {
  MonitoredRun run;
  recorded().fails = "a begin after 0";
  CHECK_THAT(sentence_of([&] { run.output->begin(/*epoch_samples=*/100); }),
             Catch::Contains("monitor 'a'") && Catch::Contains("the disk is full"));
}

TEST_CASE("a monitor that can't write the summary is the run's failure", "[monitor]") {
  MonitoredRun run;
  recorded().fails = "a end {}";
  run.output->begin(/*epoch_samples=*/100);
  run.step(1, 1);
  run.output->end("{}");
  CHECK_THAT(run.output->failure(), Catch::Contains("monitor 'a'") && Catch::Contains("the disk is full"));
}

TEST_CASE("a run that goes on tells its monitors after which step, and counts from there", "[monitor]") {
  MonitoredRun run(1, 2);
  run.output->begin(/*epoch_samples=*/100);
  CHECK(recorded().calls.front() == "a begin after 2");
  run.step(3, 1);
  run.output->saved(3, "");
  const std::optional<StepNumbers> numbers = read_step_numbers(run.folder.path());
  REQUIRE(numbers);
  CHECK(*numbers == StepNumbers{2, 3, 3});
}

TEST_CASE("a loss that jumps is named with what to change, at most three times", "[monitor]") {
  MonitoredRun run;
  std::ostringstream said;
  run.host.services.log =
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_st>(said));
  run.host.config().set("train.clip_norm", 0.0, "test");
  run.host.config().set("schedule.warmup_steps", int64_t{10}, "test");
  run.output->begin(/*epoch_samples=*/100);
  int64_t step = 0;
  for (double loss = 2; loss < 1e6; loss *= 4)
    for (int i = 0; i < 60; ++i) run.step(++step, loss);
  const std::string text = said.str();
  CHECK_THAT(text, Catch::Contains("step 63: loss rose from 2 to 8 within 5 steps; lower optimizer.lr, lengthen "
                                   "schedule.warmup_steps or set train.clip_norm") &&
                       Catch::Contains("from 32 to 128") && Catch::Contains("; the next are not named"));
  size_t named = 0;
  for (size_t at = text.find("loss rose"); at != std::string::npos; at = text.find("loss rose", at + 1)) ++named;
  CHECK(named == 3);
}

TEST_CASE("monitors hear of a resume before the first row, and of each checkpoint", "[monitor]") {
  MonitoredRun run(1, 2);
  run.output->begin(/*epoch_samples=*/100);
  run.output->resumed("/run/step-2");
  run.step(3, 1);
  run.output->saved(3, "/run/step-3");
  run.output->end("{}");
  CHECK(recorded().calls == Calls{"a begin after 2", "b begin after 2", "a resumed 2 /run/step-2",
                                  "b resumed 2 /run/step-2", "a row 3", "b row 3", "a checkpoint 3 /run/step-3",
                                  "b checkpoint 3 /run/step-3", "a end {}", "b end {}"});
}

TEST_CASE("monitors hear why a run failed and after which step, and get no call after it", "[monitor]") {
  MonitoredRun run;
  run.output->begin(/*epoch_samples=*/100);
  run.step(1, 1);
  recorded().fails = "a failed 1 the loss is gone";  // costs neither the sentence of the run nor the call of b
  run.output->failed("the loss is gone");
  run.output->failed("something else");
  run.output.reset();
  CHECK(recorded().calls == Calls{"a begin after 0", "b begin after 0", "a row 1", "b row 1",
                                  "a failed 1 the loss is gone", "b failed 1 the loss is gone"});
}

TEST_CASE("a failure is told to the monitors that have neither failed nor ended", "[monitor]") {
  MonitoredRun run;
  run.output->begin(/*epoch_samples=*/100);
  recorded().fails = "a row 1";
  run.step(1, 1);
  run.output->failed(run.output->failure());
  REQUIRE(recorded().calls.size() == 5);
  CHECK(recorded().calls.at(3) == "b row 1");
  CHECK_THAT(recorded().calls.back(), Catch::StartsWith("b failed 1 monitor 'a', row: the disk is full"));

  MonitoredRun ended;
  ended.output->begin(/*epoch_samples=*/100);
  ended.step(1, 1);
  ended.output->end("{}");
  const size_t calls = recorded().calls.size();
  ended.output->failed("the final weights can't be written");
  CHECK(recorded().calls.size() == calls);
}

TEST_CASE("a monitor that can't record a checkpoint ends the run with its message", "[monitor]") {
  MonitoredRun run;
  run.output->begin(/*epoch_samples=*/100);
  run.step(1, 1);
  recorded().fails = "b checkpoint 1 x";
  run.output->saved(1, "x");
  CHECK_THAT(run.output->failure(), Catch::Contains("monitor 'b', event: the disk is full"));
}

TEST_CASE("a run whose lock is removed while it trains ends", "[monitor]") {
  MonitoredRun run;
  run.output->begin(/*epoch_samples=*/100);
  run.step(1, 1);
  std::filesystem::remove(run.folder.file(kRunLock));
  run.step(2, 1);
  CHECK_THAT(run.output->failure(), Catch::Contains("run.lock") && Catch::Contains("was removed"));
}
