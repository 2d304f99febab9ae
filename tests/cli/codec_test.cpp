// SPDX-License-Identifier: Apache-2.0
//
// Runs with a codec (the example powersgd): the same bits under each strategy, no change before its first step, what it sends,
// its state in checkpoints, and what the program refuses.
#include <catch2/catch.hpp>

#include "cli/checkpoint_runs.hpp"

using namespace ddhost::test;
using Catch::Contains;
using nlohmann::json;

namespace {

// Matrices that the codec takes beside vectors that it does not, and tied weights.
const Words kModel = {"model.width=32", "model.hidden=64", "model.vocab=48", "run.sample_tokens=0", "monitor.every=1"};

Words with_codec(const Words& more = {}) {
  return joined(joined(kModel, {"--codec", test_plugin("powersgd"), "codec.rank=2", "codec.warmup_steps=2"}), more);
}

std::string weights_of(const Runs& runs, const std::string& name) {
  std::ifstream in(runs.dir(name) + ".safetensors", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  REQUIRE(!bytes.empty());
  return bytes;
}

RunRecord record_of(const Runs& runs, const std::string& name) { return read_run(runs.dir(name)); }

void train(const Runs& runs, const std::string& name, const Words& words) {
  const Said said = runs.train(name, joined(words, {"--save-final", runs.dir(name) + ".safetensors"}));
  INFO(name << ": " << said.err);
  REQUIRE(said.code == 0);
}

void check_same(const Runs& runs, const std::string& a, const std::string& b) {
  INFO(a << " and " << b);
  for (const char* key : {"loss", "grad_norm"}) CHECK(record_of(runs, a).column(key) == record_of(runs, b).column(key));
  CHECK(weights_of(runs, a) == weights_of(runs, b));
}

uint64_t sent_by(const Runs& runs, const std::string& name) {
  return record_of(runs, name).summary.at("counters").value("comm.sent_bytes", uint64_t{0});
}

}  // namespace

TEST_CASE("a codec gives the same bits under each strategy", "[cli]") {
  const Runs runs;
  const Words words = with_codec({"train.grad_accum_steps=2", "data.micro_batch=4", "--nproc", "3"});
  train(runs, "ddp", joined(words, {"--strategy", "ddp"}));
  for (const char* strategy : {"zero1", "zero2", "zero3", "zero3_offload", "fsdp"}) {
    train(runs, strategy, joined(words, {"--strategy", strategy}));
    check_same(runs, "ddp", strategy);
  }
}

TEST_CASE("before a codec's first step the bits are those of a run without it", "[cli]") {
  const Runs runs;
  for (const char* order : {"rank_first", "micro_first"})
    for (const char* strategy : {"ddp", "zero2"}) {
      const Words words = {"--strategy", strategy, std::string("train.reduce_order=") + order,
                           "train.grad_accum_steps=3", "data.micro_batch=2"};
      const std::string name = std::string(order) + strategy;
      train(runs, "plain" + name, joined(kModel, words));
      train(runs, "coded" + name, with_codec(joined(words, {"codec.warmup_steps=6"})));
      check_same(runs, "plain" + name, "coded" + name);
    }
  train(runs, "plain", joined(kModel, {"--strategy", "ddp"}));
  train(runs, "compressed", with_codec({"--strategy", "ddp"}));
  CHECK(record_of(runs, "plain").column("loss") != record_of(runs, "compressed").column("loss"));
}

TEST_CASE("a codec sends what the plan says, and less", "[cli]") {
  const Runs runs;
  for (const char* strategy : {"ddp", "zero2"}) {
    const auto words = [&](int steps) { return Words{"--strategy", strategy, "train.steps=" + std::to_string(steps)}; };
    const std::string name = strategy;
    train(runs, name + "4", with_codec(words(4)));
    train(runs, name + "5", with_codec(words(5)));
    train(runs, name + "plain", joined(kModel, words(1)));
    const uint64_t sent = sent_by(runs, name + "5") - sent_by(runs, name + "4");
    CHECK(sent == record_of(runs, name + "5").summary.at("plan_sent_bytes").at("all").get<uint64_t>());
    CHECK(sent < sent_by(runs, name + "plain") * 3 / 4);
    const Said planned =
        call_ddhost(joined({"plan", "--json", "--model", toy_model(), "--nproc", "2"}, with_codec(words(4))));
    INFO(planned.err);
    REQUIRE(planned.code == 0);
    const json plan = json::parse(planned.out).at("plans").at(0).at("largest_rank");
    for (const char* tag : {"param", "grad", "optim", "comm"}) {
      INFO(tag);
      CHECK(plan.at(tag) ==
            record_of(runs, name + "4").summary.at("ranks").at(0).at("memory_bytes").at(tag).at("peak"));
    }
  }
}

TEST_CASE("a resumed run with a codec has the bits of an uninterrupted one", "[cli]") {
  const Runs runs;
  const Words words = with_codec({"--strategy", "zero2", "checkpoint.every=4"});
  train(runs, "whole", words);
  train(runs, "rest", joined(words, {"--resume", runs.step("whole", 4)}));
  const std::string all = record_of(runs, "whole").column("loss"), rest = record_of(runs, "rest").column("loss");
  CHECK(std::count(rest.begin(), rest.end(), '\n') == 2);
  CHECK(all.ends_with(rest));
  CHECK(weights_of(runs, "whole") == weights_of(runs, "rest"));

  const Said other = runs.train("other", joined(words, {"--nproc", "1", "--resume", runs.step("whole", 4)}));
  INFO(other.err);
  CHECK(other.code == 0);
  CHECK_THAT(other.err, Contains("saved with 2 ranks, and this run has 1") && Contains("'error'"));
  const Said none = runs.train("none", joined(kModel, {"--strategy", "zero2", "--resume", runs.step("whole", 4),
                                                       "--resume-allow", "codec.plugin"}));
  INFO(none.err);
  CHECK(none.code == 0);
  CHECK_THAT(none.err, Contains("has the state of codec 'powersgd', which this run does not use"));
}

TEST_CASE("damage of a codec's state is found", "[cli]") {
  const Runs runs;
  const Words words = with_codec({"--strategy", "ddp", "checkpoint.every=4"});
  train(runs, "a", words);
  const std::string folder = runs.step("a", 4);
  CHECK(call_ddhost({"ckpt", "verify", folder}).code == 0);
  flip_bit(folder + "/codec-rank-1.safetensors", fs::file_size(folder + "/codec-rank-1.safetensors") - 3);
  const Said verified = call_ddhost({"ckpt", "verify", folder});
  CHECK(verified.code == 1);
  CHECK_THAT(verified.err + verified.out, Contains("codec-rank-1.safetensors' is damaged"));
  const Said resumed = runs.train("b", joined(words, {"--resume", folder}));
  CHECK(resumed.code == 1);
  CHECK_THAT(resumed.err, Contains("codec-rank-1.safetensors' is damaged"));
  fs::remove(folder + "/codec-rank-1.safetensors");
  CHECK_THAT(runs.train("c", joined(words, {"--resume", folder})).err, Contains("is missing"));
}

TEST_CASE("a codec is refused where it can't work, with the cure", "[cli]") {
  const Runs runs;
  const auto refused = [&](const Words& more, const std::string& words) {
    const Said said = runs.train("r", with_codec(more));
    INFO(said.err);
    CHECK(said.code == 1);
    CHECK_THAT(said.err, Contains(words) && Contains("leave out --codec"));
  };
  refused({"--strategy", test_plugin("bad_strategy")}, "can't be used with strategy 'bad'");
  refused({"--device", "sim"}, "computes in host memory, and device 'sim' has memory of its own");
  refused({"precision.reduce_dtype=bf16"}, "precision.reduce_dtype=bf16 rounds gradients");
  refused({"precision.compute=fp16"}, "precision.compute=fp16 changes their scale");
  const Said unknown = runs.train("u", joined(kModel, {"--codec", "no_such"}));
  CHECK(unknown.code == 1);
  CHECK_THAT(unknown.err, Contains("codec") && Contains("no_such"));
}
