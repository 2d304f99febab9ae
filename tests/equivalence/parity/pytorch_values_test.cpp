// SPDX-License-Identifier: Apache-2.0
//
// The toy model trained by PyTorch itself, under DistributedDataParallel and fully_shard on gloo, against every strategy here.
// Torch sums in another order, so numbers agree to its rounding. tests/data/make_fsdp_reference.py made them.
#include <algorithm>

#include "equivalence/variants.hpp"
#include "fixtures/harness/golden_fill.hpp"
#include "fixtures/harness/safetensors.hpp"

using namespace ddhost::test;

namespace {

struct Final {
  const char* name;
  double sum, squares;
};
struct Reference {
  std::string name;
  const char* by;
  std::vector<double> loss, grad_norm;
  std::vector<Final> finals;
};
const std::vector<Reference> kTorch = {
#include "data/fsdp_reference.inc"
};

// Two and three times the largest differences that were measured: 6.6e-8 of a loss, 1.6e-7 of a norm, 3.6e-7 in a sum.
constexpr double kLossTolerance = 2e-7, kNormTolerance = 4e-7, kSumMargin = 1e-6;

struct Case {
  const char* name;
  int world;
  Options options;
  int64_t width = 5, hidden = 9, vocab = 31;
};
const Options kAdamW = {"optimizer.betas=[0.9, 0.999]", "optimizer.eps=1e-8", "optimizer.weight_decay=0"};
const std::vector<Case> kCases = {
    {"plain", 2, {"data.micro_batch=6", "train.clip_norm=0"}},                                     // T1, T8, T16
    {"accumulation", 2, {"data.micro_batch=2", "train.clip_norm=0", "train.grad_accum_steps=3"}},  // T9, T20
    {"twice", 2, {"data.micro_batch=6", "train.clip_norm=0", "model.repeat=1"}},                   // T6
    {"uneven", 3, {"data.micro_batch=4", "train.clip_norm=0"}, 3, 7, 13},                          // T4
    {"clip_hit", 2, {"data.micro_batch=6", "train.clip_norm=0.1"}},                                // T14
    {"clip_missed", 2, {"data.micro_batch=6", "train.clip_norm=100"}},                             // T14
    {"sgd_clip", 2, {"data.micro_batch=6", "train.clip_norm=0.25", "--optimizer", "sgd"}},         // T14
    {"bf16", 2, {"data.micro_batch=6", "train.clip_norm=0", "precision.compute=bf16"}},            // T10
    {"bf16_accumulation",                                                                          // T11
     2,
     {"data.micro_batch=2", "train.clip_norm=0", "train.grad_accum_steps=4", "precision.compute=bf16"}},
};

// Of first values: uniform in +- this.
double scale_of(const std::string& name) {
  if (name.ends_with("w1") || name.ends_with("w2") || name == "embedding") return 0.5;
  return name.ends_with("gain") || name.ends_with("unused") ? 1 : 0.1;
}

void write_first_values(const std::string& path, const Case& c) {
  std::map<std::string, GoldenTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    GoldenTensor& tensor = tensors[name] = {"F32", std::move(shape), {}};
    const std::vector<float> values = golden_uni(name, tensor.numel(), scale_of(name));
    tensor.bytes.resize(values.size() * sizeof(float));
    std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  };
  add("embedding", {c.vocab, c.width});
  for (int l = 0; l < 3; ++l) {
    const std::string prefix = "layers." + std::to_string(l) + ".";
    add(prefix + "w1", {c.hidden, c.width});
    add(prefix + "b1", {c.hidden});
    add(prefix + "w2", {c.width, c.hidden});
    add(prefix + "gain", {1});
    add(prefix + "frozen", {c.width});
    add(prefix + "unused", {3});
  }
  add("bias", {c.vocab});
  write_safetensors(path, tensors);
}

Options options_of(const Case& c, const TempFolder& folder) {
  write_first_values(folder.file("first.safetensors"), c);
  const std::vector<int64_t> order = golden_ints("order", 4096, 10 * 36);
  std::ofstream(folder.file("order"), std::ios::binary)
      .write(reinterpret_cast<const char*>(order.data()), static_cast<std::streamsize>(order.size() * sizeof(int64_t)));
  Options out = c.options;
  const bool sgd = std::find(out.begin(), out.end(), "sgd") != out.end();
  if (!sgd) out.insert(out.end(), kAdamW.begin(), kAdamW.end());
  if (sgd) out.emplace_back("optimizer.lr=0.5");
  for (const auto& [key, value] : {std::pair{"width", c.width}, {"hidden", c.hidden}, {"vocab", c.vocab}})
    out.push_back(std::string("model.") + key + "=" + std::to_string(value));
  out.push_back("train.init_from=" + folder.file("first.safetensors"));
  out.push_back("data.order=" + folder.file("order"));
  out.emplace_back("schedule.type=constant");
  out.emplace_back("schedule.warmup_steps=0");
  return out;
}

void check_against(const Reference& torch, const Result& result) {
  INFO("torch " << torch.by << ", " << torch.name << "\n" << result.command);
  const TempFolder folder;
  std::ofstream(folder.file("w.safetensors"), std::ios::binary) << result.weights;
  const GoldenFile file = read_safetensors(folder.file("w.safetensors"));
  for (size_t i = 0; i < torch.loss.size(); ++i) {
    INFO("step " << i + 1);
    CHECK(result.record.steps[i].at("loss").get<double>() == Approx(torch.loss[i]).epsilon(kLossTolerance));
    CHECK(result.record.steps[i].at("grad_norm").get<double>() == Approx(torch.grad_norm[i]).epsilon(kNormTolerance));
  }
  for (const Final& final : torch.finals) {
    INFO(final.name);
    double sum = 0, squares = 0;
    for (const float x : file.at(final.name).f32()) {
      sum += x;
      squares += static_cast<double>(x) * x;
    }
    CHECK(sum == Approx(final.sum).margin(kSumMargin).epsilon(0));
    CHECK(squares == Approx(final.squares).margin(kSumMargin).epsilon(0));
  }
}

}  // namespace

TEST_CASE("every strategy trains as torch's DDP and fully_shard do", "[parity]") {
  const Case c = GENERATE(from_range(kCases));
  const TempFolder folder;
  const Options options = options_of(c, folder);
  for (const std::string& strategy : taken_strategies()) {
    const Variant way = {strategy, "shm", {}};
    const Result result = run(way, c.world, options, 10);
    for (const Reference& torch : kTorch) {
      if (torch.name == c.name) check_against(torch, result);
    }
  }
}
