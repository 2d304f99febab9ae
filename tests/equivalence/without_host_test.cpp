// SPDX-License-Identifier: Apache-2.0
//
// Every strategy, with one rank or several, gives the bits of a plain loop over model and optimizer, without host and
// strategy.
#include "equivalence/variants.hpp"
#include "fixtures/harness/bare_run.hpp"
#include "fixtures/harness/built.hpp"
#include "fixtures/harness/golden_fill.hpp"
#include "fixtures/harness/safetensors.hpp"

using namespace ddhost::test;

namespace {

constexpr int kBareSteps = 20;

struct Columns {
  std::string loss, grad_norm;
};

// Values by name, in a file that the program starts from.
void write_first_values(const std::string& path, ModelDriver& model) {
  std::map<std::string, GoldenTensor> tensors;
  for (uint32_t p = 0; p < model.desc().n_params; ++p) {
    model.value(p) = golden_fill(model.name(p), model.shape(p));
    GoldenTensor& tensor = tensors[model.name(p)] = {"F32", model.shape(p), {}};
    tensor.bytes.resize(model.value(p).size() * sizeof(float));
    std::memcpy(tensor.bytes.data(), model.value(p).data(), tensor.bytes.size());
  }
  write_safetensors(path, tensors);
}

void write_order(const std::string& path, const std::vector<int64_t>& order) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(order.data()), static_cast<std::streamsize>(order.size() * sizeof(int64_t)));
}

Columns train(BareRun& bare, const std::vector<int64_t>& order, const BareSettings& settings) {
  Columns out;
  const auto per_step = static_cast<std::ptrdiff_t>(settings.micro_batch * settings.accum);
  for (int s = 0; s < kBareSteps; ++s) {
    const auto first = order.begin() + s * per_step;
    const BareRun::StepResult step = bare.step({first, first + per_step});
    out.loss += nlohmann::json(step.loss).dump() + "\n";
    out.grad_norm += nlohmann::json(step.grad_norm).dump() + "\n";
  }
  return out;
}

void check_weights(const Result& result, BareRun& bare) {
  const TempFolder folder;
  std::ofstream(folder.file("w.safetensors"), std::ios::binary) << result.weights;
  const GoldenFile file = read_safetensors(folder.file("w.safetensors"));
  for (uint32_t p = 0; p < bare.model.desc().n_params; ++p) {
    INFO(bare.model.name(p));
    CHECK((file.at(bare.model.name(p)).f32() == bare.model.value(p)));
  }
}

struct Case {
  std::string optimizer;
  FakeHost::Options optimizer_options;
  BareSettings settings;
};

Options options_of(const Case& c) {
  Options out = {"--optimizer",
                 c.optimizer,
                 "schedule.type=constant",
                 "schedule.warmup_steps=0",
                 "data.micro_batch=" + std::to_string(c.settings.micro_batch),
                 "train.grad_accum_steps=" + std::to_string(c.settings.accum),
                 "train.clip_norm=" + std::to_string(c.settings.clip_norm),
                 std::string("train.reduce_order=") + (c.settings.micro_first ? "micro_first" : "rank_first")};
  for (const auto& [key, value] : c.optimizer_options) out.push_back(key + "=" + value);
  return out;
}

}  // namespace

TEST_CASE("one rank under every strategy has the bits of model and optimizer alone", "[equivalence]") {
  const auto c =
      GENERATE(Case{"adamw", {}, {0.01, 1, 12, 1, false}}, Case{"adamw", {}, {0.01, 0.25, 5, 3, false}},
               Case{"sgd", {{"optimizer.momentum", "0.9"}, {"optimizer.weight_decay", "0.1"}}, {0.01, 0, 3, 2, true}});
  const TempFolder folder;
  FakeHost::Options optimizer_options = c.optimizer_options;
  optimizer_options["optimizer.lr"] = "0.01";
  BareRun bare(entry_of(toy_model()), {}, entry_of(plugin_file(c.optimizer)), optimizer_options, c.settings);
  write_first_values(folder.file("first.safetensors"), bare.model);
  const std::vector<int64_t> order = golden_ints("order", 4096, kBareSteps * c.settings.micro_batch * c.settings.accum);
  write_order(folder.file("order"), order);
  const Columns expected = train(bare, order, c.settings);

  Options options = options_of(c);
  options.push_back("train.init_from=" + folder.file("first.safetensors"));
  options.push_back("data.order=" + folder.file("order"));
  for (const Variant& way : taken_variants()) {
    const Result result = run(way, 1, options, kBareSteps);
    INFO(result.command);
    CHECK(result.loss == expected.loss);
    CHECK(result.grad_norm == expected.grad_norm);
    check_weights(result, bare);
  }
}

TEST_CASE("several ranks have the bits of one loop over all their micro-batches, in blocks too", "[equivalence]") {
  constexpr size_t kAll = 12;
  const size_t block = GENERATE(1, 2, 4);
  const TempFolder folder;
  Case c{"adamw", {}, {0.01, 0.25, 3, kAll, false, block}};
  BareRun bare(entry_of(toy_model()), {}, entry_of(plugin_file(c.optimizer)), {{"optimizer.lr", "0.01"}}, c.settings);
  write_first_values(folder.file("first.safetensors"), bare.model);
  const std::vector<int64_t> order = golden_ints("order", 4096, kBareSteps * c.settings.micro_batch * kAll);
  write_order(folder.file("order"), order);
  const Columns expected = train(bare, order, c.settings);
  for (const auto& [way, world] :
       {std::pair{kReference, 4}, {kZero3, 12}, {Variant{"zero1", "loop", {"comm.windows=copy"}}, 4}}) {
    c.settings.accum = kAll / static_cast<size_t>(world);
    Options options = options_of(c);
    options.push_back("train.init_from=" + folder.file("first.safetensors"));
    options.push_back("data.order=" + folder.file("order"));
    options.push_back("train.reduce_block=" + std::to_string(block));
    const Result result = run(way, world, options, kBareSteps);
    INFO(result.command);
    CHECK(result.grad_norm == expected.grad_norm);
    check_weights(result, bare);
  }
}
