// SPDX-License-Identifier: Apache-2.0
//
// A configuration file of another program is recognized, and the error gives the options of ddhost.
#include "config/foreign_file.hpp"

#include <catch2/catch.hpp>
#include <fstream>

#include "config/user_config.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;
using namespace ddhost::test;

namespace {

std::string refusal(const std::string& text) {
  const TempFolder folder;
  std::ofstream(folder.file("given")) << text;
  return sentence_of([&] { UserConfig::read(folder.file("given"), {}); });
}

}  // namespace

TEST_CASE("a DeepSpeed configuration is named, with the options that say the same", "[config]") {
  const std::string sentence = refusal(R"({
    "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 4, "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95]}},
    "bf16": {"enabled": true}, "fp16": {"enabled": false},
    "zero_optimization": {"stage": 2, "overlap_comm": true}})");
  CHECK_THAT(sentence,
             Catch::Contains("is a configuration of DeepSpeed") &&
                 Catch::Contains("--strategy zero2 --optimizer adamw optimizer.lr=0.0003 data.micro_batch=8 "
                                 "train.grad_accum_steps=4 train.clip_norm=1.0 precision.compute=bf16; the file's "
                                 "other settings are not among these;"));
  CHECK_THAT(refusal(R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
                         "train_micro_batch_size_per_gpu": "auto"})"),
             Catch::Contains("give instead: --strategy zero3_offload strategy.offload_optimizer.device=cpu;"));
  CHECK_THAT(refusal(R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
                         "train_micro_batch_size_per_gpu": "auto"})"),
             Catch::Contains("give instead: --strategy zero2 strategy.offload_optimizer.device=cpu;"));
  CHECK_THAT(refusal(R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"},
                                                 "offload_param": {"device": "cpu"}}})"),
             Catch::Contains("give instead: --strategy zero3_offload strategy.offload_optimizer.device=nvme "
                             "strategy.offload_param.device=cpu;"));
  CHECK_THAT(refusal(R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}})"),
             Catch::Contains("give instead: --strategy zero3_offload strategy.offload_optimizer.device=none "
                             "strategy.offload_param.device=nvme;"));
  CHECK_THAT(refusal(R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "none"}}})"),
             Catch::Contains("give instead: --strategy zero3;"));
  CHECK_THAT(refusal(R"({"train_batch_size": 16, "fp16": {"enabled": true}})"),
             Catch::Contains("DeepSpeed") && Catch::Contains("precision.compute=fp16"));
}

// Adam gave --optimizer adam, whose weight decay is added to the gradient, and Lamb another optimizer of that name.
TEST_CASE("the advice for DeepSpeed's Adam is the optimizer with its weight decay, and there is none for Lamb",
          "[config]") {
  const auto advice = [](const std::string& type, const std::string& more) {
    return refusal(R"({"zero_optimization": {"stage": 1}, "optimizer": {"type": ")" + type +
                   R"(", "params": {"lr": 0.001)" + more + "}}}");
  };
  for (const char* more : {"", R"(, "adam_w_mode": true)", R"(, "torch_adam": true)"})
    CHECK_THAT(advice("Adam", more), Catch::Contains("--strategy zero1 --optimizer adamw optimizer.lr=0.001;"));
  for (const char* more : {R"(, "adam_w_mode": false)", R"(, "adam_w_mode": false, "torch_adam": true)"})
    CHECK_THAT(advice("Adam", more), Catch::Contains("--strategy zero1 --optimizer adam optimizer.lr=0.001;"));
  CHECK_THAT(advice("AdamW", R"(, "adam_w_mode": false)"), Catch::Contains("--optimizer adamw optimizer.lr=0.001;"));
  CHECK_THAT(advice("Lion", ""), Catch::Contains("--optimizer lion optimizer.lr=0.001;"));
  for (const char* type : {"Lamb", "OneBitAdam"})
    CHECK_THAT(advice(type, ""), Catch::Contains("give instead: --strategy zero1;"));
}

TEST_CASE("a configuration of Accelerate is named, with the options that say the same", "[config]") {
  CHECK_THAT(refusal("compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n"
                     "  fsdp_sharding_strategy: FULL_SHARD\nmixed_precision: 'bf16'\nnum_processes: 4\n"),
             Catch::Contains("is a configuration of Accelerate") &&
                 Catch::Contains("give instead: --strategy fsdp --nproc 4 precision.compute=bf16;"));
  CHECK_THAT(
      refusal("compute_environment: LOCAL_MACHINE\ndeepspeed_config:\n  zero_stage: 3\n"
              "  offload_optimizer_device: cpu\n  gradient_accumulation_steps: 2\ndistributed_type: DEEPSPEED\n"),
      Catch::Contains("give instead: --strategy zero3_offload strategy.offload_optimizer.device=cpu "
                      "train.grad_accum_steps=2;"));
  CHECK_THAT(
      refusal(R"({"compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_GPU", "num_processes": 2})"),
      Catch::Contains("Accelerate") && Catch::Contains("--strategy ddp --nproc 2"));
}

TEST_CASE("comments of a YAML file, and values that a shell would run, are left out of the advice", "[config]") {
  CHECK_THAT(refusal("compute_environment: X\ndistributed_type: FSDP\nmixed_precision: bf16  # or fp16\n"
                     "# num_processes: 8\nnum_processes: 2 # all GPUs\n"),
             Catch::Contains("give instead: --strategy fsdp --nproc 2 precision.compute=bf16;"));
  const std::string hostile = refusal(R"json({"zero_optimization": {"stage": 2}, "gradient_clipping": false,
                                          "optimizer": {"type": "Adam; reboot", "params": {"lr": "$(id)"}}})json");
  CHECK_THAT(hostile, Catch::Contains("give instead: --strategy zero2;"));
}

TEST_CASE("a file of ddhost, or of no program, is not mistaken for another one", "[config]") {
  CHECK(refusal(R"({"train": {"steps": 3}, "optimizer": {"lr": 0.1}})").empty());
  CHECK_THAT(refusal("train: {steps: 3}\n"), Catch::Contains("not valid JSON"));
}
