// SPDX-License-Identifier: Apache-2.0
//
// The whole program against a reference training run: nanoGPT's character model on real text, with the reference's initial
// weights and order of samples, on two ranks that share each step's 12 sequences. The reference's validation batches are read
// by the model itself, with the weights of the run's checkpoints.
#include <catch2/catch.hpp>
#include <fstream>
#include <map>

#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/golden_data.hpp"
#include "fixtures/harness/golden_fill.hpp"
#include "fixtures/harness/model_driver.hpp"
#include "fixtures/harness/safetensors.hpp"

using namespace ddhost::test;

DDH_EXTERN_C ddh_rc ddh_entry_gpt(const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX;

namespace {

constexpr uint64_t kTrainTokens = 1'003'854, kValTokens = 111'540;
constexpr int kValEvery = 100;  // steps
constexpr int64_t kLayers = 4, kWidth = 128, kVocab = 65, kContext = 64;

GoldenTensor tensor(const std::string& name, std::vector<int64_t> shape) {
  uint64_t numel = 1;
  for (const int64_t n : shape) numel *= static_cast<uint64_t>(n);
  std::vector<float> values(numel, 1.0F);
  if (shape.size() > 1) {
    const double deviation = name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(2.0 * kLayers) : 0.02;
    values = golden_uni(name, numel, deviation * std::sqrt(3.0));
  }
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  return {"F32", std::move(shape), {bytes, bytes + values.size() * sizeof(float)}};
}

void write_initial_weights(const std::string& path) {
  std::map<std::string, GoldenTensor> tensors;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
    tensors[name] = tensor(name, shape);
  };
  add("transformer.wte.weight", {kVocab, kWidth});
  add("transformer.wpe.weight", {kContext, kWidth});
  for (int64_t l = 0; l < kLayers; ++l) {
    const std::string prefix = "transformer.h." + std::to_string(l) + ".";
    add(prefix + "ln_1.weight", {kWidth});
    add(prefix + "attn.c_attn.weight", {3 * kWidth, kWidth});
    add(prefix + "attn.c_proj.weight", {kWidth, kWidth});
    add(prefix + "ln_2.weight", {kWidth});
    add(prefix + "mlp.c_fc.weight", {4 * kWidth, kWidth});
    add(prefix + "mlp.c_proj.weight", {kWidth, 4 * kWidth});
  }
  add("transformer.ln_f.weight", {kWidth});
  write_safetensors(path, tensors);
}

void write_order(const std::string& path, int steps) {
  std::ofstream out(path, std::ios::binary);
  for (int it = 0; it < steps; ++it) {
    const std::vector<int64_t> starts = golden_ints("batch." + std::to_string(it), kTrainTokens - kContext, 12);
    out.write(reinterpret_cast<const char*>(starts.data()),
              static_cast<std::streamsize>(starts.size() * sizeof(int64_t)));
  }
}

RunRecord train(const TempFolder& folder, const std::string& text, const char* strategy, int steps,
                const std::vector<std::string>& more = {}) {
  const std::string run_dir = folder.file(strategy);
  std::vector<std::string> args = {"--strategy",
                                   strategy,
                                   "--nproc",
                                   "2",
                                   "data.path=" + text,
                                   "data.order=" + folder.file("order.bin"),
                                   "train.init_from=" + folder.file("init.safetensors"),
                                   "data.micro_batch=6",
                                   "model.size=0.8M",
                                   "train.steps=" + std::to_string(steps),
                                   "optimizer.lr=1e-3",
                                   "optimizer.betas=[0.9,0.99]",
                                   "optimizer.weight_decay=0.1",
                                   "schedule.warmup_steps=100",
                                   "schedule.decay_steps=2000",
                                   "run.dir=" + run_dir,
                                   "run.sample_tokens=0",
                                   "run.quiet=true"};
  args.insert(args.end(), more.begin(), more.end());
  Process process(args);
  const int code = process.wait(std::chrono::seconds(280));
  INFO(process.command() << "\n" << process.err());
  REQUIRE(code == 0);
  return read_run(run_dir);
}

// Checkpoints at the steps that the reference evaluates.
std::vector<std::string> kept_checkpoints() {
  return {"checkpoint.every=" + std::to_string(kValEvery), "checkpoint.keep_last=0"};
}

// Mean loss of the reference's 20 validation batches with the weights of a file.
double validation_loss(ModelDriver& model, const std::string& weights) {
  const GoldenFile file = read_safetensors(weights);
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    REQUIRE(file.at(model.name(i)).shape == model.shape(i));
    model.value(i) = file.at(model.name(i)).f32();
  }
  constexpr int32_t kEval = 1;
  double sum = 0, targets = 0;
  for (int k = 0; k < 20; ++k) {
    auto batch = model.create_batch(golden_ints("val." + std::to_string(k), kValTokens - kContext, 12), kEval);
    model.forward(batch.batch, kEval);
    const auto [loss, count] = model.metric(kEval);
    sum += loss, targets += count;
    model.discard();
    model.destroy_batch(batch);
  }
  return sum / targets;
}

// Before the first step and at every checkpoint up to step `last`.
void check_validation_losses(const TempFolder& folder, const std::string& text, const char* strategy, int last,
                             const nlohmann::json& curve) {
  ModelDriver model(ddh_entry_gpt, {{"model.size", "0.8M"}, {"data.path", text}, {"model.eval_stride", "1"}});
  REQUIRE(model.desc().programs[1]->n_samples == kValTokens - kContext);
  for (int step = 0; step <= last; step += kValEvery) {
    CAPTURE(step);
    const std::string weights =
        step == 0
            ? folder.file("init.safetensors")
            : folder.file(std::string(strategy) + "/checkpoints/step-" + std::to_string(step) + "/model.safetensors");
    const auto expected = curve.at("val_loss").at(std::to_string(step)).get<double>();
    CHECK(validation_loss(model, weights) == Approx(expected).epsilon(1e-4));
  }
}

}  // namespace

TEST_CASE("two ranks under zero3 follow the reference run for 200 steps, and all strategies print the same digits") {
  const auto text = find_data("shakespeare/input.txt");
  const auto curve_path = find_data("golden/nanogpt_char_curve.json");
  if (!text || !curve_path) return;
  const nlohmann::json curve = nlohmann::json::parse(std::ifstream(*curve_path));
  const TempFolder folder;
  write_initial_weights(folder.file("init.safetensors"));
  write_order(folder.file("order.bin"), 200);

  const RunRecord zero3 = train(folder, *text, "zero3", 200, kept_checkpoints());
  REQUIRE(zero3.steps.size() == 200);
  for (size_t it = 0; it < 200; ++it) {
    CAPTURE(it);
    CHECK(zero3.steps[it].at("loss").get<double>() == Approx(curve.at("loss").at(it).get<double>()).epsilon(1e-4));
    CHECK(zero3.steps[it].at("grad_norm").get<double>() ==
          Approx(curve.at("grad_norm").at(it).get<double>()).epsilon(1e-2));
    CHECK(zero3.steps[it].at("lr").get<double>() == Approx(curve.at("lr").at(it).get<double>()).epsilon(1e-8));
  }
  check_validation_losses(folder, *text, "zero3", 200, curve);
  struct Other {
    const char* strategy;
    std::vector<std::string> options;
  };
  const std::string nvme = "strategy.nvme_path=" + folder.path().string();
  const std::vector<Other> others = {{"ddp", {}},
                                     {"zero1", {}},
                                     {"zero2", {"train.recompute=2"}},
                                     {"zero3_offload", {"strategy.offload_optimizer.device=nvme", nvme}},
                                     {"fsdp", {"train.recompute=1"}}};
  constexpr size_t kOtherSteps = 12;
  for (const Other& o : others) {
    const RunRecord other = train(folder, *text, o.strategy, kOtherSteps, o.options);
    REQUIRE(other.steps.size() == kOtherSteps);
    for (size_t it = 0; it < kOtherSteps; ++it) {
      CHECK(other.steps[it].at("loss") == zero3.steps[it].at("loss"));
      CHECK(other.steps[it].at("grad_norm") == zero3.steps[it].at("grad_norm"));
    }
  }
}

TEST_CASE("two ranks under zero1 follow the reference run for 2,000 steps", "[.long]") {
  const auto text = find_data("shakespeare/input.txt");
  const auto curve_path = find_data("golden/nanogpt_char_curve.json");
  if (!text || !curve_path) return;
  const nlohmann::json curve = nlohmann::json::parse(std::ifstream(*curve_path));
  const TempFolder folder;
  write_initial_weights(folder.file("init.safetensors"));
  write_order(folder.file("order.bin"), 2000);
  const RunRecord run = train(folder, *text, "zero1", 2000, kept_checkpoints());
  REQUIRE(run.steps.size() == 2000);
  double worst = 0;
  for (size_t it = 0; it < 2000; ++it) {
    const double ours = run.steps[it].at("loss").get<double>(), reference = curve.at("loss").at(it).get<double>();
    worst = std::max(worst, std::abs(ours - reference) / reference);
  }
  WARN("largest relative difference of a step's loss: " << worst);
  CHECK(worst < 1e-4);
  check_validation_losses(folder, *text, "zero1", 2000, curve);
}
