// SPDX-License-Identifier: Apache-2.0
//
// Each model resumes at the exact sample: a run that begins at a checkpoint, under another strategy and on another number of
// ranks, has the metrics and the weights of the run that made it. KGAT's own test is in cli_kgat.
#include <algorithm>

#include "equivalence/features.hpp"

using namespace ddhost::test;

namespace {

constexpr int kSteps = 6, kSaved = 3;

struct Resumed {
  const char* model;
  Options options;
  bool is_in_steps = true;  // else the options give the length of the run
};

std::string text() { return std::string(DDHOST_SOURCE_DIR) + "/tests/data/shakespeare/input.txt"; }

std::vector<Resumed> models() {
  return {
      {"gpt",
       {"data.path=" + text(), "model.size=custom", "model.n_layer=2", "model.n_head=2", "model.n_embd=16",
        "model.context=16", "model.dropout=0.2", "precision.compute=bf16"}},
      {"vit",
       {"model.dataset=made_up", "model.size=custom", "model.n_layer=2", "model.n_head=2", "model.width=16",
        "model.patch=7", "model.dropout=0.1", "model.stochastic_depth=0.3", "model.mixup=0.4", "model.crop_padding=2",
        "model.flip=true"}},
      // Running statistics are in the checkpoint, and the evaluation after the last step uses them.
      {"cnn",
       {"model.dataset=made_up", "model.network=basic", "model.widths=[4, 6]", "model.hidden=8", "model.padding=1",
        "model.batch_norm=true", "model.dropout=0.2", "model.mixup=0.4", "model.crop_padding=2"}},
      // In the middle of the second stage, with captions and modalities that are drawn.
      {"cad_mllm",
       {R"(train.phases=[{"program":"stage1_text","steps":2,"lr":0.01,"optimizer":"new"},)"
        R"({"program":"stage2_text_pc","steps":2,"lr":0.01,"optimizer":"new"},)"
        R"({"program":"stage3_all","steps":2,"lr":0.005,"optimizer":"new"}])",
        "model.lora_dropout=0.1", "model.projector_dropout=0.1", "model.text_dropout=0.5", "model.init=fan_in"},
       false},
  };
}

struct Trace {
  std::string rows;  // after the saved step
  std::string weights;
};

Trace run_of(const Resumed& resumed, const TempFolder& folder, const Options& more) {
  Options args = {"--model",
                  resumed.model,
                  "--save-final",
                  folder.file("final.safetensors"),
                  "run.dir=" + folder.file("run"),
                  "run.quiet=true",
                  "run.sample_tokens=0",
                  "data.micro_batch=4",
                  "optimizer.lr=0.01",
                  "train.eval_every=3",
                  "train.eval_batches=2"};
  if (resumed.is_in_steps) args.push_back("train.steps=" + std::to_string(kSteps));
  args.insert(args.end(), resumed.options.begin(), resumed.options.end());
  args.insert(args.end(), more.begin(), more.end());
  Process process(args);
  const int code = process.wait();
  INFO(process.command() << "\n" << process.err());
  REQUIRE(code == 0);
  Trace trace{"", read_text(folder.file("final.safetensors"))};
  std::ifstream in(folder.path() / "run" / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json row = nlohmann::json::parse(line);
    if (!row.contains("summary") && row.at("step") > kSaved) trace.rows += without_times(row).dump() + "\n";
  }
  return trace;
}

}  // namespace

TEST_CASE("a resumed run of each model has the bits of an uninterrupted one, on other ranks", "[equivalence][torch]") {
  for (const Resumed& resumed : models()) {
    INFO(resumed.model);
    const TempFolder whole_folder, folder;
    const Trace whole = run_of(
        resumed, whole_folder,
        {"--strategy", "ddp", "--nproc", "2", "checkpoint.every=" + std::to_string(kSaved), "checkpoint.keep_last=0"});
    const Trace again = run_of(resumed, folder,
                               {"--strategy", "zero3", "--nproc", "1", "train.grad_accum_steps=2", "--resume",
                                whole_folder.file("run/checkpoints/step-" + std::to_string(kSaved))});
    CHECK(std::count(whole.rows.begin(), whole.rows.end(), '\n') > kSteps - kSaved);  // an evaluation too
    CHECK(again.rows == whole.rows);
    CHECK((again.weights == whole.weights));
  }
}
