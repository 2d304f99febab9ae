// SPDX-License-Identifier: Apache-2.0
//
// A GPT-2 folder that transformers wrote (tests/data/make_imports.py) trains here, and goes back as it came.
#include <catch2/catch.hpp>

#include "cli/checkpoint_runs.hpp"
#include "fixtures/harness/safetensors.hpp"

using namespace ddhost::test;

namespace {

// One step at a rate of zero changes no weight.
Words gpt_words(const std::string& text, const std::string& run_dir, const Words& more) {
  Words words = {"--model",
                 "gpt",
                 "--nproc",
                 "2",
                 "run.quiet=true",
                 "model.size=custom",
                 "model.n_layer=2",
                 "model.n_head=4",
                 "model.n_embd=32",
                 "model.context=20",
                 "model.block_size=24",
                 "model.vocab=67",
                 "model.activation=gelu_tanh",
                 "data.path=" + text,
                 "data.val_fraction=0",
                 "data.micro_batch=2",
                 "run.sample_tokens=0",
                 "train.steps=1",
                 "optimizer.lr=0",
                 "checkpoint.every=1",
                 "run.dir=" + run_dir};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// The class Conv1D of transformers.
bool is_conv1d(const std::string& name) {
  for (const char* end : {".attn.c_attn.weight", ".attn.c_proj.weight", ".mlp.c_fc.weight", ".mlp.c_proj.weight"})
    if (name.ends_with(end)) return true;
  return false;
}

// The [out, in] of an [in, out].
std::vector<float> turned(const std::vector<float>& values, const std::vector<int64_t>& shape) {
  const auto in = static_cast<size_t>(shape[0]), out = static_cast<size_t>(shape[1]);
  std::vector<float> result(values.size());
  for (size_t i = 0; i < in; ++i)
    for (size_t o = 0; o < out; ++o) result[o * in + i] = values[i * out + o];
  return result;
}

}  // namespace

TEST_CASE("a GPT-2 folder of transformers trains, and its export has the tensors that transformers wrote", "[cli]") {
  const std::string strategy = GENERATE("ddp", "zero3");
  const std::string folder = std::string(DDHOST_SOURCE_DIR) + "/tests/data/imports/hf_gpt2";
  const TempFolder out;
  std::ofstream(out.file("text.txt")) << std::string(200, 'a') + "bcd";
  const Said said = call_ddhost(gpt_words(out.file("text.txt"), out.file("run"),
                                          {"model.bias=on", "train.init_from=" + folder, "--strategy", strategy}));
  INFO(said.err);
  REQUIRE(said.code == 0);
  CHECK_THAT(said.err + read_text(out.file("run/log.txt")), Catch::Contains("they are transposed"));
  const std::string checkpoint = out.file("run/checkpoints/step-1");
  const Said exported = call_ddhost({"export", checkpoint, out.file("hf"), "--layout", "transformers"});
  INFO(exported.err);
  REQUIRE(exported.code == 0);
  const GoldenFile before = read_safetensors(folder + "/model.safetensors");
  const GoldenFile after = read_safetensors(out.file("hf/model.safetensors"));
  CHECK(after.tensors.size() == 28);
  for (const auto& [name, tensor] : after.tensors) {
    INFO(name);
    CHECK(tensor.shape == before.at(name).shape);
    CHECK((tensor.bytes == before.at(name).bytes));
  }
  // In the model's own layout a square weight has the same shape and other values.
  REQUIRE(call_ddhost({"export", checkpoint, out.file("own")}).code == 0);
  const GoldenFile own = read_safetensors(out.file("own/model.safetensors"));
  const std::string square = "transformer.h.0.attn.c_proj.weight";
  CHECK(own.at(square).shape == before.at(square).shape);
  CHECK((own.at(square).bytes != before.at(square).bytes));
}

TEST_CASE("ckpt import takes over a GPT-2 of transformers with its moments, as train.init_from reads it", "[cli]") {
  const std::string from = GENERATE("gpt2_zero1", "gpt2_zero2", "gpt2_zero3");
  INFO(from);
  const std::string folder = std::string(DDHOST_SOURCE_DIR) + "/tests/data/imports/" + from;
  const TempFolder out;
  std::ofstream(out.file("text.txt")) << std::string(200, 'a') + "bcd";
  const auto run = [&](const char* name, const Words& more) {
    Words words = gpt_words(out.file("text.txt"), out.file(name),
                            {"model.n_layer=1", "model.n_head=2", "model.n_embd=8", "model.context=8",
                             "model.block_size=8", "model.vocab=31", "model.bias=on"});
    words.insert(words.end(), more.begin(), more.end());
    return call_ddhost(words);
  };
  REQUIRE(run("like", {}).code == 0);
  const Said said = call_ddhost({"ckpt", "import", folder, "--like", out.file("like"), "--out", out.file("imported")});
  INFO(said.err);
  REQUIRE(said.code == 0);
  CHECK_THAT(said.err, Catch::Contains("they are transposed"));
  const std::string imported = out.file("imported/checkpoints/step-3");
  const GoldenFile expected = read_safetensors(folder + "/expected.safetensors");
  size_t tensors = 0;
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors"}) {
    for (const auto& [name, tensor] : read_safetensors(imported + file).tensors) {
      INFO(name);
      std::vector<float> values = expected.at(name).f32();
      if (is_conv1d(name)) values = turned(values, expected.at(name).shape);
      CHECK(tensor.f32() == values);
      ++tensors;
    }
  }
  CHECK(tensors == 3 * 16);
  // Versions of DeepSpeed without the list of shared parameters: the head is the parameter of the same place.
  const std::string untied = out.file("untied");
  fs::copy(folder, untied, fs::copy_options::recursive);
  for (const auto& entry : fs::recursive_directory_iterator(untied)) {
    if (!entry.path().string().ends_with("mp_rank_00_model_states.pt")) continue;
    std::string bytes = read_text(entry.path().string());
    const size_t at = bytes.find("shared_params");
    REQUIRE(at != std::string::npos);
    bytes.replace(at, 6, "unused");
    std::ofstream(entry.path(), std::ios::binary) << bytes;
  }
  const Said read = call_ddhost({"ckpt", "import", untied, "--like", out.file("like"), "--out", out.file("old")});
  INFO(read.err);
  CHECK(read.code == 0);
  CHECK(read_text(out.file("old/checkpoints/step-3/model.safetensors")) == read_text(imported + "/model.safetensors"));
  // One step at a rate of zero changes no weight.
  REQUIRE(run("init", {"train.init_from=" + folder}).code == 0);
  CHECK(read_text(out.file("init/checkpoints/step-1/model.safetensors")) == read_text(imported + "/model.safetensors"));
  const Said on = run("on", {"--resume", imported, "train.steps=4", "--resume-allow", "train.steps"});
  INFO(on.err);
  CHECK(on.code == 0);
}

TEST_CASE("--layout transformers is refused for what transformers' GPT-2 can't be", "[cli]") {
  const TempFolder out;
  std::ofstream(out.file("text.txt")) << std::string(200, 'a') + "bcd";
  REQUIRE(call_ddhost(gpt_words(out.file("text.txt"), out.file("run"), {"model.bias=off"})).code == 0);
  const Said plain =
      call_ddhost({"export", out.file("run/checkpoints/step-1"), out.file("a"), "--layout", "transformers"});
  CHECK(plain.code == 1);
  CHECK_THAT(plain.err, Catch::Contains("without biases"));
  const Runs runs;
  REQUIRE(runs.train("toy", {"checkpoint.every=6"}).code == 0);
  const Said toy = call_ddhost({"export", runs.step("toy", 6), out.file("b"), "--layout", "transformers"});
  CHECK(toy.code == 1);
  CHECK_THAT(toy.err, Catch::Contains("has no layout 'transformers'"));
}

// A GPT was refused when it was resumed: "model.matmul was onednn and is auto".
TEST_CASE("a GPT goes on from its checkpoint with the library that auto had chosen", "[cli]") {
  const TempFolder out;
  std::ofstream(out.file("text.txt")) << std::string(200, 'a') + "bcd";
  const auto run = [&](const Words& more) {
    Words words = gpt_words(out.file("text.txt"), out.file("run"), {"train.steps=4", "checkpoint.every=2"});
    words.insert(words.end(), more.begin(), more.end());
    return call_ddhost(words);
  };
  const auto matmul = [&](const char* step) {
    const nlohmann::json manifest =
        nlohmann::json::parse(read_text(out.file("run/checkpoints/") + step + "/manifest.json"));
    return manifest.at("config").at("model").at("matmul").get<std::string>();
  };
  REQUIRE(run({}).code == 0);
  const std::string chosen = matmul("step-4");
  CHECK(chosen != "auto");
  fs::remove_all(out.file("run/checkpoints/step-4"));
  const Said resumed = run({"--resume", "auto"});
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK(matmul("step-4") == chosen);
  const std::string other = chosen == "aten" ? "onednn" : "aten";
  fs::remove_all(out.file("run/checkpoints/step-4"));
  const Said refused = run({"--resume", "auto", "model.matmul=" + other});
  CHECK(refused.code == 1);
  CHECK_THAT(refused.err, Catch::Contains("model.matmul was \"" + chosen + "\" and is \"" + other + "\""));
}
