// SPDX-License-Identifier: Apache-2.0
//
// The shipped models that give gradients in blocks of rows have the same bits with and without them: dense layers on autograd,
// the untied tables of a GPT, the embedding and the matrices of relations of KGAT, the projectors of CAD-MLLM. Memory and the
// number of reductions are those of the plan.
#include "equivalence/vision.hpp"

using namespace ddhost::test;

namespace {

// Options of a run, and buffers that hold a few blocks of it.
struct Model {
  std::string name;
  Options options;
  uint64_t buffer_bytes;
  int steps = 3;
};

Model dense_layers() {
  return {"cnn", cnn({"model.hidden=1024", "data.micro_batch=3", "data.drop_last=false"}), 300'000};
}
Model untied_gpt() {
  return {"gpt",
          {"data.path=" + std::string(DDHOST_SOURCE_DIR) + "/tests/data/shakespeare/input.txt", "data.micro_batch=2",
           "model.size=custom", "model.n_layer=1", "model.n_head=2", "model.n_embd=48", "model.context=16",
           "model.vocab=2000", "model.tied=false", "model.dropout=0.1", "train.clip_norm=0.5", "train.eval_every=0",
           "run.sample_tokens=0"},
          50'000};
}
Model kgat() {
  return {"kgat",
          {"model.dataset=made_up", "model.embed_dim=1000", "model.relation_dim=8", "model.layers=[16]",
           "optimizer_kg.plugin=adam", R"(train.optimizers=["optimizer", "optimizer_kg"])",
           R"(train.phases=[{"program": "cf", "steps": 2}, {"program": "kg", "steps": 2}])", "train.clip_norm=0.5",
           "data.micro_batch.cf=40", "data.micro_batch.kg=100"},
          300'000,
          kStepsOfOptions};
}

// Its embedding is small, and its matrices of relations are not.
Model relations_of_kgat() {
  Model model = kgat();
  for (std::string& option : model.options) {
    if (option == "model.embed_dim=1000") option = "model.embed_dim=64";
    if (option == "model.relation_dim=8") option = "model.relation_dim=256";
  }
  model.buffer_bytes = 140'000;
  return model;
}
Model projectors() {
  return {
      "cad_mllm",
      {R"(train.programs=["stage3_all"])", "model.projector_hidden=2048", "model.projector_dropout=0.1",
       "model.init=fan_in", "data.micro_batch=2", "train.clip_norm=0.5", "train.eval_every=0", "run.sample_tokens=0"},
      150'000};
}

uint64_t largest_grad(const Result& result) {
  uint64_t most = 0;
  for (size_t rank = 0; rank < static_cast<size_t>(result.cell.world); ++rank)
    most = std::max(most, peak_bytes(result, rank, "grad"));
  return most;
}

int reductions(const Result& result) { return result.record.summary.at("counters").value("comm.reduce", 0); }

void check_model(const Model& model, int world, const Options& more) {
  const Options options = joined(model.options, more);
  const Result reference = run({kReference, world, options, model.steps, model.name});
  const Result zero1 = run({kZero1, world, options, model.steps, model.name});
  check_same_bits(reference, zero1);
  for (const char* strategy : {"zero2", "zero3", "zero3_offload", "fsdp"}) {
    const Variant way{strategy, "shm", {"strategy.grad_buffer_bytes=" + std::to_string(model.buffer_bytes)}};
    const Result blocks = run({way, world, options, model.steps, model.name});
    check_same_bits(reference, blocks);
    check_plan(blocks);
    if (model.steps > 0) check_counts(blocks);  // the plan counts the first program of several
    CHECK(reductions(blocks) > reductions(zero1));
    CHECK(largest_grad(blocks) < largest_grad(zero1));
  }
}

const Options kAccumulated = {"train.grad_accum_steps=2", "train.reduce_order=rank_first"};
const Options kNarrow = {"precision.compute=bf16"};

}  // namespace

TEST_CASE("the dense layers of a network have the same bits in blocks and whole", "[equivalence][torch]") {
  check_model(dense_layers(), 3, joined(kNarrow, {"train.recompute=1"}));
}

TEST_CASE("the untied tables of a GPT have the same bits in blocks and whole", "[equivalence][torch]") {
  check_model(untied_gpt(), 2, joined(kNarrow, kAccumulated));
}

TEST_CASE("the embedding of KGAT has the same bits in blocks and whole", "[equivalence][torch]") {
  check_model(kgat(), 2, kAccumulated);
}

TEST_CASE("the matrices of KGAT's relations have the same bits in blocks and whole", "[equivalence][torch]") {
  check_model(relations_of_kgat(), 2, {});
}

TEST_CASE("the projectors of CAD-MLLM have the same bits in blocks and whole", "[equivalence][torch]") {
  check_model(projectors(), 2, {"train.recompute=1"});
}

TEST_CASE("blocks of all models have the same bits with other ranks, dtypes and operators", "[.all]") {
  SECTION("dense layers, 2 ranks") { check_model(dense_layers(), 2, kAccumulated); }
  SECTION("GPT, 3 ranks") { check_model(untied_gpt(), 3, {}); }
  SECTION("GPT by LibTorch's operators") { check_model(untied_gpt(), 2, {"model.operators=torch"}); }
  SECTION("KGAT, 4 ranks, bf16") { check_model(kgat(), 4, kNarrow); }
}
