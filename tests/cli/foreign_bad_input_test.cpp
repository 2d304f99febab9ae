// SPDX-License-Identifier: Apache-2.0
//
// Files of other programs that are wrong: each ends with 2, one sentence with file, line and key, and nothing written.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "fixtures/harness/built.hpp"
#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost::test;

namespace {

void check_refused(const std::string& name, const std::string& text, const std::vector<std::string>& wanted) {
  const TempFolder folder;
  const std::string file = folder.file(name);
  std::ofstream(file, std::ios::binary) << text;
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {name.ends_with(".json") ? "--deepspeed_config" : "--config", file, "--model", toy_model(), "--nproc", "2",
            "--device", "cpu", "run.dir=" + folder.file("run")},
           {"convert", file, "--nproc", "2"}}) {
    const bool converts = words.front() == "convert";
    Process process(words);
    const int code = process.wait(std::chrono::seconds(60));
    const std::string said = converts ? process.out() + process.err() : process.err();
    INFO(process.command() << "\n" << text.substr(0, 200) << "\nexit " << code << "\n" << said);
    CHECK(code == 2);
    for (const std::string& word : wanted) CHECK_THAT(said, Catch::Contains(word));
    if (converts) continue;
    CHECK(std::count(said.begin(), said.end(), '\n') == 1);
    CHECK_THAT(said, Catch::StartsWith("ddhost: ") && Catch::Contains(name));
    CHECK(!std::filesystem::exists(folder.file("run")));
  }
}

std::string with_batch(const std::string& more) { return "{\"train_batch_size\": 4,\n" + more + "\n}"; }

void json(const std::string& more, const std::vector<std::string>& wanted) {
  std::vector<std::string> all = wanted;
  all.emplace_back("line 2");
  check_refused("ds.json", with_batch(more), all);
}
void yaml(const std::string& more, const std::vector<std::string>& wanted) {
  std::vector<std::string> all = wanted;
  all.emplace_back("line 2");
  check_refused("a.yaml", "distributed_type: MULTI_GPU\n" + more + "\n", all);
}

}  // namespace

TEST_CASE("a key in the wrong section is refused with its place", "[cli]") {
  json(R"("fp16": {"reduce_bucket_size": 5})", {"fp16.reduce_bucket_size", "belongs at zero_optimization"});
  json(R"("stage": 2)", {"stage", "belongs at zero_optimization.stage"});
  json(R"("optimizer": {"lr": 1e-3})", {"optimizer.lr", "belongs at optimizer.params.lr"});
  yaml("fsdp_offload_params: true", {"fsdp_offload_params", "belongs at fsdp_config"});
}

TEST_CASE("two spellings of one key with different values are refused", "[cli]") {
  json(R"("zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5, "prefetch_bucket_size": 6})",
       {"prefetch_bucket_size", "two names of one setting"});
  json(R"("zero_optimization": {"stage": 2, "cpu_offload": true, "offload_optimizer": {"device": "none"}})",
       {"cpu_offload", "two names of one setting"});
  json(R"("bf16": {"enabled": true}, "bfloat16": {"enabled": false})",
       {"bfloat16.enabled", "two names of one setting"});
  json(R"("gradient_clipping": 1, "gradient_clipping": 2)", {"gradient_clipping", "occurs twice"});
  check_refused("a.yaml", "distributed_type: NO\nnum_processes: 2\nnum_processes: 3\n",
                {"num_processes", "occurs twice", "line 3"});
}

TEST_CASE("values of the wrong kind, and precisions that exclude each other, are refused", "[cli]") {
  json(R"("fp16": {"enabled": true}, "bf16": {"enabled": true})", {"bf16.enabled", "are both true"});
  json(R"("zero_optimization": {"stage": "2"})", {"zero_optimization.stage", "is not an integer"});
  json(R"("zero_optimization": {"stage": 4})", {"zero_optimization.stage", "at most"});
  json(R"("zero_optimization": [1])", {"zero_optimization"});
  json(R"("optimizer": {"type": ["Adam"]})", {"optimizer.type", "is not a text"});
  json(R"("optimizer": "Adam")", {"optimizer", "is not an object"});
  check_refused("ds.json", with_batch(R"("gradient_accumulation_steps": 3)"),
                {"line 1", "train_batch_size", "does not divide"});
  yaml("mixed_precision: float16", {"mixed_precision", "none of"});
  yaml("mixed_precision: yes", {"mixed_precision", "names no precision"});
  check_refused("a.yaml", "distributed_type: DEEPSPEED\ndeepspeed_config: {gradient_accumulation_steps: x}\n",
                {"line 2", "gradient_accumulation_steps"});
}

TEST_CASE("numbers that are negative, huge or not finite are refused", "[cli]") {
  check_refused("ds.json", "{\n\"train_batch_size\": -4}", {"line 2", "train_batch_size", "less than 1"});
  check_refused("ds.json", "{\n\"train_batch_size\": 1e30}", {"line 2", "train_batch_size"});
  check_refused("ds.json", "{\n\"train_batch_size\": 99999999999999999999999}", {"line 2", "train_batch_size"});
  check_refused("ds.json", "{\n\"train_batch_size\": 4.5}", {"line 2", "train_batch_size"});
  json(R"("gradient_clipping": -1)", {"gradient_clipping", "less than 0"});
  json(R"("gradient_clipping": NaN)", {"gradient_clipping", "NaN"});
  check_refused("ds.json", R"({"train_batch_size": 4, "gradient_clipping": NaN})",
                {"line 1", "of gradient_clipping has"});
  json(R"("gradient_clipping": 1e400)", {"gradient_clipping"});
  json(R"("gradient_clipping": Infinity)", {"gradient_clipping", "Infinity"});
  json(R"("optimizer": {"type": "Adam", "params": {"lr": -1e-3}})", {"optimizer.params.lr", "less than 0"});
  json(R"("optimizer": {"type": "Adam", "params": {"betas": [0.9, 1.5]}})", {"optimizer.params.betas"});
  json(R"("optimizer": {"type": "Adam", "params": {"betas": [0.9]}})", {"optimizer.params.betas", "2 numbers"});
  yaml("num_processes: -3", {"num_processes", "1 or more"});
  yaml("num_machines: 0", {"num_machines", "less than 1"});
}

TEST_CASE("templates and texts that can't be read are refused with their line", "[cli]") {
  json(R"("gradient_clipping": "${CLIP}")", {"gradient_clipping", "placeholder"});
  json(R"("gradient_clipping": "{{ clip }}")", {"gradient_clipping", "placeholder"});
  yaml("num_processes: ${GPUS}", {"num_processes", "placeholder"});
  yaml("num_processes: !!python/object:os.system 2", {"tag"});
  yaml("a: &x [1]\nb: [*x]", {"anchor"});
  std::string aliases = "distributed_type: MULTI_GPU\nx: &x 1\ny: [";
  for (int i = 0; i < 10'000; ++i) aliases += "*x,";
  check_refused("a.yaml", aliases + "]\n", {"line 2", "anchor"});
}

TEST_CASE("a byte order mark in front of a file is read over", "[cli]") {
  const TempFolder folder;
  std::ofstream(folder.file("ds.json"), std::ios::binary) << "\xEF\xBB\xBF{\"train_batch_size\": 4}";
  std::ofstream(folder.file("a.yaml"), std::ios::binary) << "\xEF\xBB\xBF"
                                                         << "distributed_type: MULTI_GPU\n";
  for (const char* name : {"ds.json", "a.yaml"}) {
    Process process({"convert", folder.file(name), "--nproc", "2"});
    INFO(name << process.err());
    CHECK(process.wait() == 0);
  }
}
