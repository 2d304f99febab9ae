// SPDX-License-Identifier: Apache-2.0
//
// What `ddhost plan` says against what a run takes, for the tiny configuration of each model: parameters, gradients, optimizer
// state and transport to the byte, activations within 3 %, and what the tables at the end name against the PSS of the
// processes. The tables are printed.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>

#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost::test;
using nlohmann::json;

namespace {

constexpr double kMostOfActivations = 0.03, kMostOfPss = 0.05;
// LibTorch's tensors are counted in steps of this size, and a peak may be lower by one.
constexpr double kCountedStep = 64 * 1024;
// A heap grows in steps, and what the loader has freed is used again.
constexpr double kHeapStep = 1 << 20;
const char* const kTags[] = {"param", "grad", "optim", "comm"};

struct Model {
  std::string config;
  Words length;  // a run of seconds without evaluations, which are not planned
};
const std::vector<Model> kModels = {
    {"gpt_tiny", {"train.steps=2", "train.eval_every=0"}},
    {"vit_tiny", {"train.steps=2", "train.eval_every=0"}},
    {"cnn_tiny", {"train.steps=2", "train.eval_every=0"}},
    {"kgat_tiny", {"train.cycles=1", "train.eval_every_epochs=0"}},
    {"cad_mllm_tiny", {"train.eval_every=0"}},
};

struct Compared {
  json planned, measured;  // of `plan --json`: its only plan; the summary of the run
};

Compared compared(const Model& model, const std::string& strategy, int world, const Words& more) {
  const Words words = joined(joined({"--config", std::string(DDHOST_SOURCE_DIR "/configs/") + model.config + ".json",
                                     "--strategy", strategy, "--nproc", std::to_string(world), "--device", "cpu"},
                                    model.length),
                             more);
  const Said planned = call_ddhost(joined({"plan", "--json"}, words));
  INFO(planned.err);
  REQUIRE(planned.code == 0);
  const TempFolder folder;
  const Said run =
      call_ddhost(joined(words, {"run.sample_tokens=0", "run.quiet=true", "run.dir=" + folder.file("run")}),
                  std::chrono::seconds(600));
  INFO(run.err);
  REQUIRE(run.code == 0);
  return {json::parse(planned.out).at("plans").at(0), read_run(folder.path() / "run").summary};
}

double peak_of_activations(const json& summary) {
  double most = 0;
  for (const json& rank : summary.at("ranks"))
    most = std::max(most, rank.at("memory_bytes").at("act").at("peak").get<double>());
  return most;
}

// Prints a row, and checks it.
void check_activations(const std::string& what, const Compared& c) {
  const double planned = c.planned.at("largest_rank").at("act").get<double>(),
               measured = peak_of_activations(c.measured);
  std::printf("%-44s activations: planned %11.0f, measured %11.0f, %+5.1f %%\n", what.c_str(), planned, measured,
              100 * (planned / measured - 1));
  CHECK(std::abs(planned - measured) <= std::max(kMostOfActivations * measured, kCountedStep));
}

// The plan before there are ranks, and those of the ranks.
void check_tags(const Compared& c) {
  const json& largest = c.planned.at("largest_rank");
  const json& ranks = c.measured.at("ranks");
  for (const char* tag : kTags) {
    INFO(tag);
    CHECK(largest.at(tag) == ranks.at(largest.at("rank").get<size_t>()).at("memory_bytes").at(tag).at("peak"));
    for (const json& rank : ranks) CHECK(rank.at("plan_bytes").at(tag) == rank.at("memory_bytes").at(tag).at("peak"));
  }
}

// The data sets of a process: what it has more once the model is made.
void check_data_sets(const std::string& what, const Compared& c) {
  const double planned = c.planned.at("data_sets").get<double>();
  for (const json& rank : c.measured.at("ranks")) {
    if (rank.at("process_bytes").is_null()) return;
    const double measured = rank.at("process_bytes").at("data_sets").get<double>();
    if (&rank == &c.measured.at("ranks").front())
      std::printf("%-44s data sets: planned %11.0f, measured %11.0f\n", what.c_str(), planned, measured);
    CHECK(std::abs(planned - measured) <= std::max(kMostOfPss * measured, kHeapStep));
  }
}

// The difference between the PSS of all processes and what the table names, as a part of the PSS; nullopt: not known.
std::optional<double> unnamed_part(const json& summary) {
  double difference = 0, pss = 0;
  for (const json& rank : summary.at("ranks")) {
    const json& bytes = rank.at("process_bytes");
    if (bytes.is_null()) return std::nullopt;
    difference += bytes.at("difference").get<double>();
    pss += bytes.at("pss").get<double>();
  }
  return difference / pss;
}

void check_pss(const std::string& what, const Compared& c) {
  const std::optional<double> part = unnamed_part(c.measured);
  if (!part) return;
  std::printf("%-44s not named: %+5.1f %% of the PSS\n", what.c_str(), 100 * *part);
  CHECK(std::abs(*part) <= kMostOfPss);
}

}  // namespace

TEST_CASE("activations are planned within 3 %, with and without recomputation", "[cli]") {
  for (const Model& model : kModels) {
    for (const char* recompute : {"0", "1"}) {
      const std::string what = model.config + ", recompute " + recompute;
      INFO(what);
      const Compared c = compared(model, "ddp", 1, {std::string("train.recompute=") + recompute});
      check_activations(what, c);
      check_tags(c);
      if (*recompute == '0') check_pss(what, c);
      if (*recompute == '0') check_data_sets(what, c);
    }
  }
}

// Adapters whose gradients have blocks: asked for whole, and later.
TEST_CASE("activations of a CAD-MLLM are planned within 3 % where its gradients come in blocks", "[cli]") {
  const Words wide = {"model.mlp_width=1024", "model.lora_rank=64", "model.projector_hidden=1024",
                      "data.micro_batch=8",   "train.phases=null",  "train.programs=[\"stage3_all\"]",
                      "train.steps=2",        "train.eval_every=0"};
  for (const char* compute : {"fp32", "bf16"}) {
    for (const char* dropout : {"0.0", "0.1"}) {
      const Words options =
          joined(wide, {std::string("precision.compute=") + compute, std::string("model.lora_dropout=") + dropout,
                        std::string("model.projector_dropout=") + dropout});
      const std::string what = std::string("cad_mllm, ") + compute + ", dropout " + dropout;
      INFO(what);
      check_activations(what + ", whole", compared({"cad_mllm_tiny", {}}, "ddp", 1, options));
      const Compared later =
          compared({"cad_mllm_tiny", {}}, "zero2", 2, joined(options, {"strategy.grad_buffer_bytes=80000"}));
      check_activations(what + ", later", later);
      check_tags(later);
    }
  }
}

TEST_CASE("plans hold for 1 to 8 ranks, every strategy and every model", "[.all]") {
  for (const Model& model : kModels) {
    for (const char* strategy : {"ddp", "zero1", "zero2", "zero3", "zero3_offload", "fsdp"}) {
      for (int world = 1; world <= 8; ++world) {
        const std::string what = model.config + ", " + strategy + ", " + std::to_string(world) + " ranks";
        INFO(what);
        const Compared c = compared(model, strategy, world, {});
        check_activations(what, c);
        check_tags(c);
        check_pss(what, c);
        check_data_sets(what, c);
      }
    }
  }
}

TEST_CASE("activations of larger models are planned within 3 %, in 16 bits too", "[.all]") {
  struct Other {
    Model model;
    Words more;
  };
  const Words steps = {"train.steps=2", "train.eval_every=0"};
  const Words few = {"train.epochs=null", "train.steps=2", "train.eval_every_epochs=0"};
  for (const Other& other :
       {Other{{"gpt_char", steps}, {}}, Other{{"gpt_tiny", steps}, {"model.n_embd=128", "model.context=256"}},
        Other{{"gpt_tiny", steps}, {"model.n_embd=1024"}}, Other{{"vit_s", steps}, {"data.micro_batch=4"}},
        Other{{"cnn_vgg11", few}, {"data.micro_batch=4"}}, Other{{"gpt_tiny", steps}, {"model.dropout=0.1"}},
        Other{{"cnn_mobilenet_v3_small", few}, {"data.micro_batch=8"}}, Other{{"cnn_cifar10_resnet9", few}, {}},
        Other{{"cnn_cifar10_resnet9", few}, {"model.channels_last=false"}}}) {
    for (const char* compute : {"fp32", "bf16"}) {
      for (const char* recompute : {"0", "1"}) {
        const std::string what = other.model.config + ", " + compute + ", recompute " + recompute;
        INFO(what);
        check_activations(what, compared(other.model, "ddp", 1,
                                         joined(other.more, {std::string("precision.compute=") + compute,
                                                             std::string("train.recompute=") + recompute})));
      }
    }
  }
}
