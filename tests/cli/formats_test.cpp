// SPDX-License-Identifier: Apache-2.0
//
// Plugins of kind format: that of the SDK's examples reads a file of llm.c, and one with faults ends the run with one
// sentence, without a child that is left over.
#include <sys/prctl.h>

#include <catch2/catch.hpp>

#include "fixtures/harness/safetensors.hpp"
#include "fixtures/harness/setting.hpp"
#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;

namespace {

// A GPT of 2 layers and 5 tokens. No step: the weights are saved as they begin.
Words gpt_words(const TempFolder& out, const std::string& run, const Words& more) {
  std::ofstream(out.file("text.txt")) << std::string(200, 'a') + "bcde";
  return joined({"--model", "gpt", "--nproc", "2", "run.quiet=true", "run.sample_tokens=0", "model.size=custom",
                 "model.n_layer=2", "model.n_head=2", "model.n_embd=8", "model.context=6", "model.bias=on",
                 "data.path=" + out.file("text.txt"), "data.val_fraction=0", "data.micro_batch=2", "train.steps=0",
                 "run.dir=" + out.file(run)},
                more);
}

// The file that llm.c's train_gpt2.py writes: version 3 is fp32. The vocabulary is padded by three rows.
void write_llmc(const std::string& path, const GoldenFile& weights) {
  constexpr int32_t kLayers = 2, kVocabulary = 5, kPadded = 8, kContext = 6, kWidth = 8;
  std::ofstream out(path, std::ios::binary);
  std::array<int32_t, 256> header = {20240326, 3, kContext, kVocabulary, kLayers, 2, kWidth, kPadded};
  out.write(reinterpret_cast<const char*>(header.data()), sizeof header);
  const auto put = [&](const std::string& name) {
    const GoldenTensor& tensor = weights.at("transformer." + name);
    out.write(tensor.bytes.data(), static_cast<std::streamsize>(tensor.bytes.size()));
  };
  put("wte.weight");
  const std::string padding((kPadded - kVocabulary) * kWidth * sizeof(float), '\0');
  out << padding;
  put("wpe.weight");
  for (const char* name : {"ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"})
    for (const char* end : {".weight", ".bias"})
      for (int32_t l = 0; l < kLayers; ++l) put("h." + std::to_string(l) + "." + name + end);
  put("ln_f.weight");
  put("ln_f.bias");
}

ToyRun bad_run(const std::string& fault, const Words& more = {}) {
  const TempFolder folder;
  std::ofstream(folder.file("x.bad")) << "x";
  ::setenv("BAD_FORMAT", fault.c_str(), 1);
  ToyRun run = toy_run(
      {"train.steps=1", "train.init_from=" + folder.file("x.bad"), "run.format=" + test_plugin("bad_format")}, more);
  ::unsetenv("BAD_FORMAT");
  return run;
}

}  // namespace

#ifdef DDHOST_HAS_GPT
TEST_CASE("a format of the SDK's examples reads a file of llm.c with the same bits", "[cli]") {
  const TempFolder out;
  REQUIRE(call_ddhost(gpt_words(out, "a", {"--save-final", out.file("a.safetensors")})).code == 0);
  const GoldenFile weights = read_safetensors(out.file("a.safetensors"));
  write_llmc(out.file("gpt2.bin"), weights);
  const Words from = {"run.seed=7", "train.init_from=" + out.file("gpt2.bin"), "--strategy", "zero3"};
  const auto check_equal = [&](const Said& said, const std::string& file) {
    INFO(said.err);
    REQUIRE(said.code == 0);
    CHECK_THAT(said.err, Catch::Contains("a model of llm.c, was read by format 'llmc' with at most"));
    const GoldenFile found = read_safetensors(file);
    CHECK(found.tensors.size() == weights.tensors.size());
    for (const auto& [name, tensor] : found.tensors) {
      INFO(name);
      CHECK((tensor.bytes == weights.at(name).bytes));
    }
  };
  const Words named = {"run.format=" + test_plugin("llmc_format"), "--save-final", out.file("b.safetensors")};
  check_equal(call_ddhost(gpt_words(out, "b", joined(from, named))), out.file("b.safetensors"));

  // Training from it is training from these weights.
  const auto two_steps = [&](const std::string& run, const std::string& file) {
    const Said said = call_ddhost(
        gpt_words(out, run, {"train.steps=2", "train.init_from=" + file, "run.format=" + test_plugin("llmc_format")}));
    INFO(said.err);
    REQUIRE(said.code == 0);
    return read_run(out.file(run)).column("loss");
  };
  const std::string losses = two_steps("of_llmc", out.file("gpt2.bin"));
  CHECK(std::count(losses.begin(), losses.end(), '\n') == 2);
  CHECK(losses == two_steps("of_safetensors", out.file("a.safetensors")));

  // By itself it is found in the folders of plugins.
  const std::string folder = out.file("plugins");
  std::filesystem::create_directory(folder);
  std::filesystem::copy(test_plugin("llmc_format"), folder);
  ::setenv("DDHOST_PLUGIN_PATH", folder.c_str(), 1);
  check_equal(call_ddhost(gpt_words(out, "c", joined(from, {"--save-final", out.file("c.safetensors")}))),
              out.file("c.safetensors"));
  ::unsetenv("DDHOST_PLUGIN_PATH");

  // Cut at any place, it is refused.
  const std::string whole = read_text(out.file("gpt2.bin"));
  const size_t bytes = GENERATE(size_t{0}, size_t{3}, size_t{1000}, size_t{1024}, size_t{2000}, size_t{6000});
  std::ofstream(out.file("gpt2.bin"), std::ios::binary) << whole.substr(0, bytes);
  const Said cut = call_ddhost(gpt_words(out, "d", joined(from, {"run.format=" + test_plugin("llmc_format")})));
  INFO(bytes << ": " << cut.err);
  CHECK(cut.code == 1);
  CHECK_THAT(cut.err, Catch::Contains("gpt2.bin"));
  CHECK_FALSE(std::filesystem::exists(out.file("d")));
}
#endif

TEST_CASE("a format that misbehaves ends the run with one sentence", "[cli]") {
  const auto& [fault, words] = GENERATE(table<std::string, Words>({
      {"matches:segv", {"signal 11"}},  // not called: the user has chosen it, so the run goes on
      {"create:segv", {"signal 11", "in create of format 'bad_format'"}},
      {"open:segv", {"signal 11", "in open of format 'bad_format'"}},
      {"open:exit", {"exit code 0", "in open of format 'bad_format'"}},
      {"read:abort", {"signal 6", "in read of 'w' of format 'bad_format'"}},
      {"open:refuse", {"the file is upside down; turn it"}},
      {"open:no_what", {"it gives no text `what`", "fix '"}},
      {"open:count", {"it gives 4294967295 tensors"}},
      {"tensor:bytes", {"'w' has 12 bytes, but its shape [4] and dtype take 16"}},
      {"tensor:negative", {"the impossible shape [-4]"}},
      {"tensor:role", {"its role is 7"}},
      {"tensor:no_name", {"it has no name"}},
      {"tensor:dtype", {"its dtype is 99"}},
      {"tensor:huge", {"copy of x.bad"}},
      {"read:no_reason", {"read of 'w': it fails with DDH_INTERNAL (13) and gives no reason"}},
  }));
  const ToyRun run = bad_run(fault);
  if (fault == "matches:segv") {
    CHECK_THAT(run.err, Catch::Contains("tensors that the model lacks: 'w'"));
    return;
  }
  check_refused(run, words);
}

TEST_CASE("a format that misbehaves when it is asked whether a file is its own ends the run with one sentence",
          "[cli]") {
  const TempFolder folder;
  std::ofstream(folder.file("x.bad")) << "x";
  std::filesystem::create_directory(folder.file("plugins"));
  std::filesystem::copy(test_plugin("bad_format"), folder.file("plugins"));
  const Setting plugins("DDHOST_PLUGIN_PATH", folder.file("plugins"));
  const auto refused = [&](const char* fault, const Words& words) {
    INFO(fault);
    const Setting how("BAD_FORMAT", fault);
    check_refused(toy_run({"train.steps=1", "train.init_from=" + folder.file("x.bad"), "run.watchdog_abort=1"}), words);
  };
  refused("matches:segv", {"signal 11", "in matches of format 'bad_format'", "x.bad"});
  refused("matches:loop", {"matches of format 'bad_format' has not returned for 1 s", "x.bad"});
}

TEST_CASE("ckpt import takes a format, its memory and its time, and leaves nothing behind a format that fails",
          "[cli]") {
  const TempFolder folder;
  std::ofstream(folder.file("x.bad")) << "x";
  const auto said = [&](const char* fault, const Words& more) {
    const Setting how("BAD_FORMAT", fault);
    return call_ddhost(joined({"ckpt", "import", folder.file("x.bad"), "--out", folder.file("out"), "--format",
                               test_plugin("bad_format"), "--like", folder.file("run")},
                              more));
  };
  REQUIRE(call_ddhost({"--model", toy_model(), "train.steps=1", "checkpoint.every=1", "run.quiet=true",
                       "run.sample_tokens=0", "run.dir=" + folder.file("run")})
              .code == 0);
  const auto refused = [&](const Said& one, const char* words) {
    INFO(one.err);
    CHECK(one.code == 1);
    CHECK_THAT(one.err, Catch::Contains(words) && Catch::Contains("x.bad"));
    CHECK_FALSE(std::filesystem::exists(folder.file("out")));
  };
  refused(said("open:segv", {}), "in open of format 'bad_format'");
  refused(said("open:memory", {"--convert-memory", "300MiB"}), "--convert-memory");
  refused(said("open:loop", {"--watchdog-abort", "1"}), "has not returned for 1 s");
}

TEST_CASE("a format that does not return is ended after run.watchdog_abort", "[cli]") {
  check_refused(bad_run("read:loop", {"run.watchdog_abort=1"}),
                {"read of 'w' of format 'bad_format' has not returned for 1 s", "x.bad"});
}

TEST_CASE("a signal during a conversion ends the run and leaves neither a child nor a folder", "[cli]") {
  const TempFolder folder;
  std::ofstream(folder.file("x.bad")) << "x";
  ::setenv("BAD_FORMAT", "open:loop", 1);
  ::setenv("MISBEHAVE_MARK", folder.file("mark").c_str(), 1);
  Process process({"--model", toy_model(), "train.steps=1", "run.quiet=true", "run.dir=" + folder.file("run"),
                   "train.init_from=" + folder.file("x.bad"), "run.format=" + test_plugin("bad_format")});
  ::unsetenv("BAD_FORMAT");
  ::unsetenv("MISBEHAVE_MARK");
  for (int i = 0; i < 3000 && !std::filesystem::exists(folder.file("mark")); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  REQUIRE(std::filesystem::exists(folder.file("mark")));
  kill(process.pid(), SIGTERM);
  CHECK(process.wait(std::chrono::seconds(20)) == 143);
  CHECK_FALSE(std::filesystem::exists(folder.file("run")));
  size_t left = 1;
  for (int i = 0; i < 500 && left > 0; ++i) {  // a child that is killed with its parent takes a moment to end
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    left = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc"))
      if (read_text(entry.path() / "cmdline").find(folder.file("x.bad")) != std::string::npos) ++left;
  }
  CHECK(left == 0);
}

TEST_CASE("a format takes at most run.convert_memory", "[cli]") {
  const std::string kind = GENERATE("memory", "shared_memory");
  INFO(kind);
  check_refused(bad_run("open:" + kind, {"run.convert_memory=300MiB"}), {"300.0 MiB", "run.convert_memory", "x.bad"});
  check_refused(bad_run("", {"run.convert_memory=much"}), {"run.convert_memory=much is not a size"});
}

TEST_CASE("a format that is not there, and a file of two formats, are refused", "[cli]") {
  const TempFolder folder;
  std::ofstream(folder.file("x.bad")) << "x";
  check_refused(toy_run({"train.init_from=" + folder.file("x.bad"), "run.format=typewriter"}),
                {"there is no format 'typewriter'; there are: torch"});
  check_refused(toy_run({"train.init_from=" + folder.file("x.bad"), "run.format=" + plugin_file("zero1")}),
                {"holds the strategy 'zero1', not a format"});
  std::filesystem::create_directory(folder.file("y.bad"));
  std::ofstream(folder.file("y.bad/.metadata")) << "x";
  std::filesystem::create_directory(folder.file("plugins"));
  std::filesystem::copy(test_plugin("bad_format"), folder.file("plugins"));
  ::setenv("DDHOST_PLUGIN_PATH", folder.file("plugins").c_str(), 1);
  check_refused(toy_run({"train.init_from=" + folder.file("y.bad")}),
                {"is of two formats, format 'torch' and format 'bad_format'", "run.format"});
  std::filesystem::remove(folder.file("y.bad/.metadata"));
  std::ofstream(folder.file("y.bad/model.safetensors")) << "x";
  check_refused(toy_run({"train.init_from=" + folder.file("y.bad")}), {"safetensors and format 'bad_format'"});
  ::unsetenv("DDHOST_PLUGIN_PATH");
}
