// SPDX-License-Identifier: Apache-2.0
//
// train.phases: order, learning rates and optimizer state of phases; phases that are refused.
#include <catch2/catch.hpp>
#include <functional>

#include "fixtures/harness/built.hpp"
#include "fixtures/harness/listed.hpp"
#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;
using nlohmann::json;

namespace {

std::string phases(const json& list) { return "train.phases=" + list.dump(); }

// Two training programs, an update program, rates that do not change by themselves.
const std::vector<std::string> kTwo = {"model.programs=2",       "model.update_samples=20", "data.micro_batch=3",
                                       "schedule.type=constant", "schedule.warmup_steps=0", "optimizer.lr=0.01"};

ToyRun run(const std::vector<std::string>& options) { return toy_run(kTwo, options, test_plugin("toy_features")); }

std::string column(const ToyRun& run, const char* key) {
  std::string text;
  for (const json& row : run.record.steps) text += (text.empty() ? "" : " ") + row.value(key, json()).dump();
  return text;
}

void check_same_run(const ToyRun& a, const ToyRun& b) {
  INFO(a.command << "\n" << b.command);
  for (const char* key : {"loss", "grad_norm", "lr"}) CHECK(column(a, key) == column(b, key));
}

json train(int steps) { return {{"program", "train"}, {"steps", steps}}; }
json second(int steps) { return {{"program", "second"}, {"steps", steps}}; }
json with(json phase, const char* key, const json& value) {
  phase[key] = value;
  return phase;
}

}  // namespace

TEST_CASE("phases run in order and in cycles", "[cli]") {
  const ToyRun once = ran(run({phases({train(3), second(2)}), "train.cycles=2"}));
  CHECK(column(once, "program") ==
        R"("train" "train" "train" "second" "second" "train" "train" "train" "second" "second")");
  CHECK(once.record.summary.at("steps") == 10);
  const ToyRun written_out = ran(run({phases({train(3), second(2), train(3), second(2)})}));
  check_same_run(once, written_out);
}

TEST_CASE("programs in turn are one phase: the same bits as train.programs", "[cli]") {
  const json turns = {{"program", {"train", "second"}}, {"steps", 12}};
  check_same_run(ran(run({phases(json::array({turns}))})), ran(run({"train.steps=12"})));
  check_same_run(ran(run({phases({train(1), second(1)}), "train.cycles=6"})), ran(run({"train.steps=12"})));
  const ToyRun named = ran(run({"train.steps=7", "train.programs=[\"second\"]"}));
  check_same_run(ran(run({phases(json::array({second(7)}))})), named);
}

TEST_CASE("an update program is a phase of its own, also at the start of a run", "[cli]") {
  const json renew = {{"program", "renew"}};
  const std::vector<std::string> one = {"train.programs=[\"train\"]"};
  const ToyRun every = ran(run(joined(one, {"train.steps=12", "train.update_every=3"})));
  check_same_run(ran(run({phases({train(3), renew}), "train.cycles=4"})), every);
  const ToyRun never = ran(run(joined(one, {"train.steps=12"})));
  const ToyRun first = ran(run({phases({renew, train(12)})}));
  CHECK(first.record.steps[0].at("loss") != never.record.steps[0].at("loss"));
  CHECK(every.record.steps[0].at("loss") == never.record.steps[0].at("loss"));
}

TEST_CASE("a phase may have its own lr and schedule, which count its own steps", "[cli]") {
  const std::vector<std::string> kg = {"schedule_kg.type=linear", "schedule_kg.warmup_steps=2",
                                       "schedule_kg.min_lr_ratio=0"};
  const json own = with(with(second(2), "schedule", "schedule_kg"), "lr", 0.5);
  const ToyRun phased = ran(run(joined(kg, {phases({train(1), own}), "train.cycles=3"})));
  // The second program's six steps, as a run of six steps has them.
  const ToyRun alone = ran(run({"train.programs=[\"second\"]", "train.steps=6", "schedule.type=linear",
                                "schedule.warmup_steps=2", "schedule.min_lr_ratio=0", "optimizer.lr=0.5"}));
  std::string rates;
  for (const json& row : phased.record.steps) {
    if (row.at("program") == "second")
      rates += (rates.empty() ? "" : " ") + row.at("lr").dump();
    else
      CHECK(row.at("lr") == 0.01);
  }
  CHECK(rates == column(alone, "lr"));
  // Only lr is given: the run's schedule, starting from that rate.
  const ToyRun lr = ran(run({phases({train(2), with(train(2), "lr", 0.25)})}));
  CHECK(column(lr, "lr") == "0.01 0.01 0.25 0.25");
  // The run's schedule counts all steps of the run.
  const ToyRun decay = ran(run({phases({train(2), second(4), train(2)}), "schedule.type=linear"}));
  const ToyRun plain = ran(run({"train.steps=8", "schedule.type=linear"}));
  CHECK(column(decay, "lr") == column(plain, "lr"));
}

TEST_CASE("a phase with new optimizer state has the bits of a run that starts with these weights", "[cli]") {
  const TempFolder folder;
  const std::string weights = folder.file("w.safetensors"), order = folder.file("order.bin");
  // 30 samples in the same order in every epoch: five steps of 6.
  std::ofstream out(order, std::ios::binary);
  for (int64_t i = 0; i < 30; ++i) out.write(reinterpret_cast<const char*>(&i), sizeof i);
  out.close();
  for (const std::string& strategy : listed_strategies()) {
    std::filesystem::remove(weights);
    const std::vector<std::string> options = {"--strategy", strategy, "data.order=" + order};
    const json later = {{"program", "train"}, {"epochs", 1}};
    ran(run(joined(options, {phases(json::array({train(5)})), "--save-final", weights})));
    const ToyRun begun = ran(run(joined(options, {phases(json::array({later})), "train.init_from=" + weights})));
    const ToyRun renewed = ran(run(joined(options, {phases({train(5), with(later, "optimizer", "new")})})));
    const ToyRun kept = ran(run(joined(options, {phases({train(5), with(later, "optimizer", "keep")})})));
    REQUIRE(renewed.record.steps.size() == 10);
    for (size_t i = 0; i < 5; ++i) {
      INFO(strategy << " step " << i + 6);
      for (const char* key : {"loss", "grad_norm"})
        CHECK(renewed.record.steps[5 + i].at(key) == begun.record.steps[i].at(key));
      CHECK((kept.record.steps[5 + i].at("loss") == begun.record.steps[i].at("loss")) == (i == 0));
    }
  }
}

TEST_CASE("optimizer state and gradients that no later phase needs are freed", "[cli]") {
  // The state of zero3_offload is in pinned memory, or on the device.
  const auto strategy =
      GENERATE(values<std::vector<std::string>>({{"ddp"},
                                                 {"zero1"},
                                                 {"zero2"},
                                                 {"zero3"},
                                                 {"fsdp"},
                                                 {"zero3_offload"},
                                                 {"zero3_offload", "strategy.offload_optimizer.device=none"}}));
  INFO(strategy[0] << (strategy.size() > 1 ? " " + strategy[1] : ""));
  const auto now = [](const ToyRun& run, const char* tag) {
    uint64_t bytes = 0;
    for (const json& rank : run.record.summary.at("ranks"))
      bytes += rank.at("memory_bytes").at(tag).at("now").get<uint64_t>();
    return bytes;
  };
  const auto with = [&](const std::vector<std::string>& options) {
    std::vector<std::string> all = {"--nproc", "2", "precision.compute=bf16", "--strategy"};
    all.insert(all.end(), strategy.begin(), strategy.end());
    all.insert(all.end(), options.begin(), options.end());
    return ran(run(all));
  };
  const ToyRun both = with({phases({train(3), second(2)})}), kept = with({phases({second(2), train(3)})});
  const ToyRun cycles = with({phases({train(3), second(2)}), "train.cycles=2"});
  const ToyRun alone = with({"train.steps=1", "train.programs=[\"second\"]"});
  CHECK(now(both, "optim") < now(kept, "optim"));
  CHECK(now(both, "optim") > now(alone, "optim"));  // the masters of the first phase stay
  CHECK(now(both, "grad") < now(kept, "grad"));
  CHECK(now(cycles, "optim") == now(kept, "optim"));
}

TEST_CASE("phases that count epochs do not lose the rest of an epoch", "[cli]") {
  const json epoch = {{"program", "train"}, {"epochs", 1}};
  const ToyRun two = ran(run({phases({epoch, epoch}), "model.samples=50", "train.eval_every_epochs=2",
                              "train.eval_batches=2", "run.nproc=2", "train.grad_accum_steps=1"}));
  CHECK(two.record.steps.size() == 18);  // 8 steps of 6 samples and one of 2, twice
  CHECK(two.record.evaluations.size() == 1);
}

TEST_CASE("a phase may have its own micro-batch", "[cli]") {
  const ToyRun run_of_two = ran(run({phases({train(2), with(train(2), "micro_batch", 5)}), "run.quiet=false"}));
  CHECK_THAT(run_of_two.err, Catch::Contains("6 samples a step (3 x 2") && Catch::Contains("10 samples a step (5 x 2"));
  std::map<int, double> flops;  // of a sample, by micro-batch
  for (const json& work : run_of_two.record.summary.at("estimates"))
    flops[work.at("micro_batch")] = work.at("forward_flops").get<double>() / work.at("micro_batch").get<double>();
  CHECK(flops == std::map<int, double>{{3, flops[3]}, {5, flops[3]}});
  CHECK_THAT(run_of_two.err, Catch::Contains("phase 1 of 2: train, 2 steps") && Catch::Contains("phase 2 of 2: train"));
}

TEST_CASE("a key of a phase that is null is not given", "[cli]") {
  json empty = train(2);
  for (const char* key : {"epochs", "lr", "schedule", "optimizer", "micro_batch"}) empty[key] = nullptr;
  CHECK(column(ran(run({phases(json::array({empty}))})), "loss") ==
        column(ran(run({phases(json::array({train(2)}))})), "loss"));
}

TEST_CASE("phases give the same bits under every strategy and in every world of one global batch", "[cli]") {
  const json renew = {{"program", "renew"}};
  const json epochs = {{"program", "second"}, {"epochs", 1}, {"micro_batch", 2}, {"lr", 0.02}, {"optimizer", "new"}};
  const std::vector<std::string> options = {phases({train(3), renew, epochs}),
                                            "train.cycles=2",
                                            "model.samples=60",
                                            "model.optimizers=2",
                                            "train.optimizers=[\"optimizer\",\"optimizer_b\"]",
                                            "train.eval_every=4"};
  std::string first;
  for (const std::string& strategy : listed_strategies()) {
    for (const auto& [world, accum] : {std::pair{"1", "4"}, std::pair{"2", "2"}, std::pair{"4", "1"}}) {
      const ToyRun one = ran(run(
          joined(options, {"--strategy", strategy, "--nproc", world, std::string("train.grad_accum_steps=") + accum})));
      std::string all = column(one, "loss") + column(one, "grad_norm");
      for (const json& row : one.record.evaluations) all += row.dump();
      if (first.empty()) first = all;
      INFO(one.command);
      CHECK(all == first);
    }
  }
}

TEST_CASE("invalid phases get one sentence", "[cli]") {
  const auto refused = [](const json& list, const std::vector<std::string>& words) {
    check_refused(run({phases(list)}), words);
  };
  const json one = json::array({train(2)});
  refused(json::array({{{"program", "trian"}, {"steps", 1}}}), {"phase 1", "\"trian\"", "it has train, second, renew"});
  refused(json::array({{{"program", "eval"}, {"steps", 1}}}), {"phase 1", "\"eval\""});
  refused({train(1), {{"steps", 1}}}, {"phase 2", "names no program"});
  refused(json::array({{{"program", "train"}}}), {"phase 1", "neither steps nor epochs"});
  refused(json::array({with(train(2), "epochs", 1)}), {"phase 1", "both steps and epochs"});
  refused(json::array({train(0)}), {"phase 1", "steps = 0"});
  refused(json::array({with(train(2), "lr", -1)}), {"phase 1", "lr = -1"});
  refused(json::array({with(train(2), "micro_batch", 0)}), {"phase 1", "micro_batch = 0"});
  refused(json::array({with(train(2), "micro_batch", 2000000)}), {"phase 1", "from 1 to 1048576"});
  refused(json::array({with(train(2), "optimizer", "fresh")}), {"phase 1", "\"fresh\"", "\"keep\" or \"new\""});
  refused(json::array({with(train(2), "stesp", 1)}), {"phase 1", "'stesp'", "program, steps, epochs"});
  refused(json::array({{{"program", "renew"}}}), {"trains nothing"});
  refused({train(1), {{"program", "renew"}, {"steps", 2}}}, {"phase 2", "'renew'", "once over all its samples"});
  refused(json::array({{{"program", {"train", "renew"}}, {"steps", 2}}}), {"phase 1", "mixes"});
  refused(json::array({with(train(2), "schedule", "kg")}), {"\"kg\"", "schedule_kg"});
  refused(json::array({with(train(2), "schedule", "schedule_kg")}), {"schedule_kg.type is not given"});
  const json reads_losses = {{"program", {"train", "second"}}, {"steps", 2}, {"schedule", "schedule_kg"}};
  check_refused(run({phases(json::array({reads_losses})), "schedule_kg.type=plateau"}),
                {"schedule_kg.type=plateau needs a single loss"});
  check_refused(run({phases(one), "schedule_kg.type=linear"}), {"'schedule_kg'", "belongs to no phase"});
  check_refused(run({phases(one), "train.steps=3"}), {"train.steps=3 and train.phases"});
  check_refused(run({phases(one), "train.epochs=3"}), {"train.epochs=3 and train.phases"});
  check_refused(run({phases(one), "train.programs=[\"train\"]"}), {"train.programs", "and train.phases"});
  check_refused(run({phases(one), "train.update_every=1"}), {"train.update_every=1 and train.phases"});
  check_refused(run({"train.cycles=2"}), {"train.cycles=2", "there are none"});
  check_refused(run({"train.phases=7"}), {"train.phases", "array"});
}

TEST_CASE("a dry run with phases prints an equivalent config", "[cli]") {
  const TempFolder folder;
  const ToyRun first = ran(
      run({phases({train(2), with(second(1), "schedule", "schedule_kg")}), "schedule_kg.type=linear", "--dry-run"}));
  std::ofstream(folder.file("config.json")) << first.out;
  Process again({"--config", folder.file("config.json"), "--dry-run"});
  REQUIRE(again.wait() == 0);
  CHECK(again.out() == first.out);
}
