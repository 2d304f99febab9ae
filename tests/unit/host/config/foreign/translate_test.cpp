// SPDX-License-Identifier: Apache-2.0
//
// What the keys of DeepSpeed's and Accelerate's files mean here.
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <map>

#include "config/foreign/reverse.hpp"
#include "config/foreign/translation.hpp"
#include "ddh/sdk/plugin.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;
using namespace ddhost::test;

namespace {

struct Setting {
  int64_t ranks = 2;
  std::string version = "";
  std::map<std::string, Json> given = {};
  std::string format = "deepspeed";
  std::map<std::string, Json> on_command_line = {};
};

Translation translated(const std::string& text, const Setting& setting = {}) {
  const TempFolder folder;
  std::ofstream(folder.file("given")) << text;
  const auto value = [](const std::map<std::string, Json>& values, const std::string& key) -> std::optional<Json> {
    const auto at = values.find(key);
    return at == values.end() ? std::nullopt : std::optional<Json>(at->second);
  };
  return translate_file(*foreign_table(setting.format), folder.file("given"),
                        {[&] { return setting.ranks; },
                         [&](const std::string& key) {
                           const auto on_line = value(setting.on_command_line, key);
                           return on_line ? on_line : value(setting.given, key);
                         },
                         setting.version, [&](const std::string& key) { return value(setting.on_command_line, key); }});
}

// The values of our keys; null: none.
Json ours(const Translation& translation, const std::string& key) {
  for (const Translation::Line& line : translation.lines)
    if (line.key == key) return line.value;
  return nullptr;
}
Json ours(const std::string& text, const std::string& key, const Setting& setting = {}) {
  const Translation translation = translated(text, setting);
  INFO(text);
  CHECK(translation.refused.empty());
  return ours(translation, key);
}

std::string refusal(const std::string& text, const Setting& setting = {}) {
  return sentence_of([&] { require_accepted(translated(text, setting)); });
}

std::string with_batch(const std::string& more) { return "{train_batch_size: 4, " + more + "}"; }
std::string optimizer(const std::string& text) { return with_batch("optimizer: " + text); }
std::string scheduler(const std::string& text) { return with_batch("scheduler: " + text); }

}  // namespace

TEST_CASE("the other program's defaults hold where the file says nothing", "[foreign]") {
  const Translation none = translated("{train_batch_size: 4}");
  CHECK(ours(none, "schedule.type") == "constant");
  CHECK(ours(none, "schedule.warmup_steps") == 0);
  CHECK(ours(none, "train.clip_norm") == 1.0);
  CHECK(ours(none, "optimizer.decay_groups") ==
        true);  // the Trainer makes the optimizer, which spares biases and norms
  CHECK(ours(none, "optimizer.weight_decay") == 0.0);
  CHECK(ours(none, "strategy.plugin") == "ddp");
  CHECK(ours(none, "precision.compute") == "fp32");
  CHECK(ours(none, "precision.reduce_dtype") == "fp32");
  const std::string adam = optimizer("{type: 'Adam'}");
  CHECK(ours(adam, "optimizer.lr") == 1e-3);
  CHECK(ours(adam, "optimizer.betas") == Json({0.9, 0.999}));
  CHECK(ours(adam, "optimizer.eps") == 1e-8);
  CHECK(ours(adam, "optimizer.weight_decay") == 0.0);
  CHECK(ours(adam, "optimizer.bias_correction") == true);
  CHECK(ours(with_batch("zero_optimization: {stage: 2}"), "strategy.reduce_bucket_bytes") == 2'000'000'000);
}

TEST_CASE("a version pins the defaults that changed", "[foreign]") {
  CHECK(ours("{train_batch_size: 4}", "train.clip_norm", {2, "0.18"}) == 0.0);
  CHECK(ours("{train_batch_size: 4}", "train.clip_norm", {2, "0.19.2"}) == 0.0);
  CHECK(ours("{train_batch_size: 4}", "train.clip_norm", {2, "0.19.3"}) == 1.0);
  CHECK(ours("{train_batch_size: 4}", "train.clip_norm", {2, "0.19"}) == 1.0);
  CHECK(ours(with_batch("gradient_clipping: 0.5"), "train.clip_norm", {2, "0.18"}) == 0.5);
  CHECK(ours(with_batch("bf16: {enabled: true}"), "train.skip_nonfinite", {2, "0.18"}) == false);
  CHECK(ours(scheduler("{type: 'WarmupLR'}"), "schedule.max_lr", {2, "0.17"}) == Json());
  CHECK(ours(scheduler("{type: 'WarmupLR'}"), "schedule.max_lr", {2, "0.16"}) == 0.001);
  CHECK(ours(scheduler("{type: 'WarmupDecayLR', params: {total_num_steps: 9}}"), "schedule.max_lr") == 0.001);
}

TEST_CASE("Adam decouples the weight decay unless adam_w_mode is false, and AdamW always", "[foreign]") {
  CHECK(ours(optimizer("{type: 'Adam'}"), "optimizer.plugin") == "adamw");
  CHECK(ours(optimizer("{type: 'adam', params: {adam_w_mode: true}}"), "optimizer.plugin") == "adamw");
  CHECK(ours(optimizer("{type: 'Adam', params: {adam_w_mode: false}}"), "optimizer.plugin") == "adam");
  CHECK(ours(optimizer("{type: 'AdamW', params: {adam_w_mode: false}}"), "optimizer.plugin") == "adamw");
  CHECK(ours(optimizer("{type: 'AdamW', params: {bias_correction: false}}"), "optimizer.bias_correction") == false);
  // PyTorch's own AdamW has a default of its own.
  CHECK(ours(optimizer("{type: 'AdamW', params: {torch_adam: true}}"), "optimizer.weight_decay") == 0.01);
}

TEST_CASE("schedulers keep their shape and their defaults", "[foreign]") {
  const std::string warmup = scheduler("{type: 'WarmupLR', params: {warmup_max_lr: 1e-3, warmup_num_steps: 7}}");
  CHECK(ours(warmup, "schedule.type") == "warmup");
  CHECK(ours(warmup, "schedule.warmup_type") == "log");
  CHECK(ours(warmup, "schedule.min_lr") == 0.0);
  CHECK(ours(warmup, "schedule.max_lr") == 1e-3);
  CHECK(ours(warmup, "schedule.warmup_steps") == 7);
  const std::string cosine = scheduler("{type: 'WarmupCosineLR', params: {total_num_steps: 90}}");
  CHECK(ours(cosine, "schedule.type") == "warmup_cosine");
  CHECK(ours(cosine, "schedule.decay_steps") == 90);
  CHECK(ours(cosine, "schedule.warmup_steps") == 1000);
  CHECK(ours(cosine, "schedule.min_lr_ratio") == 0.0001);
  CHECK_THAT(refusal(scheduler("{type: 'WarmupDecayLR'}")), Catch::Contains("total_num_steps is missing"));
  CHECK_THAT(refusal(scheduler("{type: 'OneCycle', params: {cycle_min_lr: 0, cycle_max_lr: 1}}")),
             Catch::Contains("cycle_momentum"));
  CHECK(ours(scheduler("{type: 'OneCycle', params: {cycle_min_lr: 0, cycle_max_lr: 1, cycle_momentum: false}}"),
             "schedule.type") == "cycle");
  const std::string range = scheduler("{type: 'LRRangeTest', params: {lr_range_test_step_size: 200}}");
  CHECK(ours(range, "schedule.type") == "range_test");
  CHECK(ours(range, "schedule.rise_steps") == 200);
  CHECK(ours(range, "schedule.min_lr") == 0.001);
}

TEST_CASE("profilers become a profile, and services a monitor", "[foreign]") {
  CHECK(ours(with_batch("flops_profiler: {enabled: true, profile_step: 3}"), "profile.steps") == "auto");
  CHECK(ours(with_batch("comms_logger: {enabled: true}"), "profile.steps") == "auto");
  CHECK(ours(with_batch("comms_logger: {enabled: true}, flops_profiler: {enabled: true}"), "profile.steps") == "auto");
  CHECK(ours(with_batch("flops_profiler: {enabled: false}"), "profile.steps").is_null());
  CHECK(ours(with_batch("wandb: {enabled: true, project: 'p'}, tensorboard: {enabled: true}"), "monitor.plugins") ==
        Json({"jsonl", "tensorboard", "wandb"}));
  CHECK(ours(with_batch("wandb: {enabled: true, project: 'p'}"), "monitor.wandb.project") == "p");
  CHECK(ours(with_batch("wandb: {enabled: false}, csv_monitor: {enabled: true}"), "monitor.plugins") ==
        Json({"jsonl", "csv"}));
}

TEST_CASE("stages and devices choose the strategy", "[foreign]") {
  const auto zero = [](const std::string& more) { return with_batch("zero_optimization: {" + more + "}"); };
  CHECK(ours(zero("stage: 0"), "strategy.plugin") == "ddp");
  CHECK(ours(zero("stage: 1"), "strategy.plugin") == "zero1");
  CHECK(ours(zero("stage: 2"), "strategy.plugin") == "zero2");
  CHECK(ours(zero("stage: 3"), "strategy.plugin") == "zero3");
  CHECK(ours(zero("stage: 3, offload_param: {device: 'none'}"), "strategy.plugin") == "zero3");
  CHECK(ours(zero("stage: 3, offload_param: {device: 'cpu'}"), "strategy.plugin") == "zero3_offload");
  CHECK(ours(zero("stage: 3, offload_param: {device: 'cpu'}"), "strategy.offload_optimizer.device") == "none");
  CHECK(ours(zero("stage: 2, cpu_offload: true"), "strategy.offload_optimizer.device") == "cpu");
  CHECK(ours(zero("stage: 1, offload_optimizer: {device: 'cpu'}"), "strategy.offload_optimizer.device") == "cpu");
  CHECK(ours(with_batch("zero_optimization: true"), "strategy.plugin") == "zero1");
  CHECK(ours(zero("stage: 3, max_live_parameters: 10"), "strategy.max_live_bytes") == 40);
  CHECK_THAT(refusal(zero("stage: 3, offload_optimizer: {device: 'nvme'}")), Catch::Contains("nvme_path is missing"));
}

TEST_CASE("precision, the loss scale and what is sent follow the 16-bit sections", "[foreign]") {
  const std::string fp16 =
      with_batch("zero_optimization: {stage: 2}, fp16: {enabled: true, initial_scale_power: 12, hysteresis: 3}");
  CHECK(ours(fp16, "precision.compute") == "fp16");
  CHECK(ours(fp16, "precision.initial_scale_power") == 12);
  CHECK(ours(fp16, "precision.hysteresis") == 3);
  CHECK(ours(fp16, "precision.loss_scale_at_min") == "raise");
  // Stage 0 has another scaler, without hysteresis, which never ends the run.
  CHECK(ours(with_batch("fp16: {enabled: true}"), "precision.hysteresis") == 1);
  CHECK(ours(with_batch("fp16: {enabled: true}"), "precision.loss_scale_at_min") == "keep");
  CHECK(ours(with_batch("bf16: {enabled: true}"), "precision.reduce_dtype") == "bf16");
  CHECK(ours(with_batch("bf16: {enabled: true}, communication_data_type: 'fp32'"), "precision.reduce_dtype") == "fp32");
  CHECK(ours(with_batch("bfloat16: {enabled: true}"), "precision.compute") == "bf16");
  CHECK_THAT(refusal(with_batch("fp16: {enabled: true}, bf16: {enabled: true}")), Catch::Contains("both true"));
}

TEST_CASE("the batch is completed and checked as the other program does it", "[foreign]") {
  CHECK(ours("{train_batch_size: 32, train_micro_batch_size_per_gpu: 4}", "train.grad_accum_steps") == 4);
  CHECK(ours("{train_batch_size: 32, gradient_accumulation_steps: 4}", "data.micro_batch") == 4);
  CHECK(ours("{train_batch_size: 32}", "data.micro_batch") == 16);
  CHECK(translated("{train_batch_size: 32}").lines.front().from.kind_text() == std::string("derived"));
  CHECK(ours("{train_micro_batch_size_per_gpu: 3}", "train.grad_accum_steps") == 1);
  CHECK_THAT(refusal("{train_batch_size: 33, train_micro_batch_size_per_gpu: 17, gradient_accumulation_steps: 2}"),
             Catch::Contains("line 1: train_batch_size does not multiply out: train_batch_size (33) is not "
                             "train_micro_batch_size_per_gpu (17) x gradient_accumulation_steps (2) x 2 ranks"));
  CHECK_THAT(refusal("{train_batch_size: 5}"), Catch::Contains("does not multiply out"));
  CHECK_THAT(refusal("{train_batch_size: 4, train_micro_batch_size_per_gpu: 4}"), Catch::Contains("does not divide"));
  CHECK_THAT(refusal("{}"), Catch::Contains("both missing"));
  CHECK(ours("{}", "data.micro_batch", {2, "", {{"data.micro_batch", 6}}}) == 6);
}

TEST_CASE("auto is what the Hugging Face Trainer puts there, or the user's value", "[foreign]") {
  const std::string text = R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
      "warmup_num_steps": "auto", "total_num_steps": "auto"}},
    "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}})";
  CHECK(ours(text, "data.micro_batch") == 8);
  CHECK(ours(text, "optimizer.lr") == 5e-5);
  CHECK(ours(text, "train.clip_norm") == 1.0);
  CHECK(ours(text, "precision.compute") == "fp32");
  CHECK(ours(text, "schedule.decay_steps").is_null());  // all steps of the run
  CHECK(ours(text, "schedule.max_lr").is_null());       // the optimizer's
  CHECK(ours(text, "optimizer.lr", {2, "", {{"optimizer.lr", 2e-4}}}) == 2e-4);
  CHECK(ours(text, "precision.compute",
             {2, "", {{"precision.compute=bf16", true}, {"precision.compute=fp16", false}}}) == "bf16");
  CHECK(ours(R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 2})",
             "data.micro_batch") == 8);
  CHECK_THAT(refusal(with_batch("prescale_gradients: 'auto'")), Catch::Contains("auto"));
}

TEST_CASE("a key that is misspelt, misplaced, removed or impossible here is refused with a cure", "[foreign]") {
  const auto check = [](const std::string& more, const std::string& wanted) {
    INFO(more);
    CHECK_THAT(refusal(with_batch(more)), Catch::Contains(wanted));
  };
  check("gradient_clipp1ng: 1", "did you mean 'gradient_clipping'?");
  check("zero_optimization: {overlap_com: true}", "did you mean 'overlap_comm'?");
  check("initial_scale_power: 4", "belongs at fp16.initial_scale_power");
  check("zero_optimization: {stage: \"2\"}", "is not an integer");
  check("zero_optimization: {stage: 4}", "more than 3");
  check("gradient_clipping: -1", "less than 0");
  check("optimizer: 'Adam'", "is not an object");
  check("optimizer: {type: 'Adam', params: {betas: [0.9]}}", "not a list of 2 numbers");
  check("optimizer: {type: 'Adam', params: {betas: [0.9, 1.5]}}", "not from 0 to");
  check("optimizer: {type: 'Adam', params: {lr: 1e300}}", "more than");
  check("fp16: {enabled: true, loss_scale: 3}", "no power of two");
  check("optimizer: {type: 'AdamWW'}", "did you mean AdamW?");
  check("optimizer: {type: 'OneBitAdam'}", "one bit");
  check("optimizer: {type: 'SGD', params: {betas: [0.9, 0.99]}}", "alone; leave it out");
  check("optimizer: {type: 'AdamW', params: {max_grad_norm: 1}}", "gradient_clipping");
  check("compression_training: {weight_quantization: {a: {enabled: true}}}", "DeepSpeed 0.19.7 has removed it");
  check("zero_optimization: {stage: 2, cpu_offload: true, offload_optimizer: {device: 'none'}}",
        "two names of one setting");
  check("wandb: {enabeld: true}", "did you mean 'enabled'?");
  check("elasticity: {enabled: false, max_gpu: 4}",
        "elasticity.max_gpu is no key of DeepSpeed; did you mean 'max_gpus'?");
  check("zero_optimization: {leaf_module: {class: 'A'}}", "did you mean 'classes'?");
  check("zero_optimization: {fp16: {enabled: true}}", "belongs at fp16");
  check("data_types: {keep_in_fp32_modules: ['norm']}", "keep_in_fp32_modules");
  for (const char* section : {"elasticity", "autotuning", "curriculum_learning", "amp", "data_efficiency"})
    check(std::string(section) + ": {enabled: true}", section);
  check("tensor_parallel: {autotp_size: 4}", "AutoTP");
  check("zero_optimization: {stage: 1, zenflow: {topk_ratio: 0.1}}", "ZenFlow");
  // Of an optimizer that is refused, its type alone is.
  CHECK(
      translated(optimizer("{type: 'OneBitLamb', params: {lr: 1e-3, coeff_beta: 0.9, factor_max: 4.0, factor_min: 0.5, "
                           "factor_threshold: 0.1, freeze_step: 10}}"))
          .refused.size() == 1);
  CHECK(translated(optimizer("{type: 'ZeroOneAdam', params: {var_freeze_step: 9, var_update_scaler: 16, "
                             "local_step_scaler: 32678, local_step_clipper: 16}}"))
            .refused.size() == 1);
}

TEST_CASE("remarks of a file, and keys of the newest versions, change nothing", "[foreign]") {
  const Translation plain = translated(with_batch("zero_optimization: {stage: 2}"));
  const Translation more = translated(
      with_batch("zero_optimization: {stage: 2, parameter_alignment: true, compute_grad_norm: true}, _comment: 'a b', "
                 "disable_python_gc: true, data_types: {keep_in_fp32_modules: 'auto'}"));
  CHECK(more.refused.empty());
  CHECK(more.config() == plain.config());
}

TEST_CASE("every key of a table has a place in the result, and every value of the file its line", "[foreign]") {
  const Translation result =
      translated("{train_batch_size: 4,\n zero_optimization: {stage: 2},\n wall_clock_breakdown: true}");
  CHECK(ours(result, "strategy.plugin") == "zero2");
  const auto strategy = std::find_if(result.lines.begin(), result.lines.end(),
                                     [](const auto& one) { return one.key == "strategy.plugin"; });
  CHECK(strategy->from.line == 2);
  const auto idle = std::find_if(result.idle.begin(), result.idle.end(),
                                 [](const auto& one) { return one.from.key == "wall_clock_breakdown"; });
  REQUIRE(idle != result.idle.end());
  CHECK(idle->from.line == 3);
  CHECK(!idle->reason.empty());
}

TEST_CASE("Accelerate: kinds, ranks, precision, and DeepSpeed's section", "[foreign]") {
  const Setting yaml{2, "", {}, "accelerate"};
  CHECK(ours("distributed_type: MULTI_GPU\nnum_processes: 8\nmixed_precision: bf16", "run.nproc", yaml) == 8);
  CHECK(ours("distributed_type: MULTI_GPU\nnum_processes: 8\nmixed_precision: bf16", "precision.compute", yaml) ==
        "bf16");
  CHECK(ours("distributed_type: 'NO'\nmixed_precision: no", "strategy.plugin", yaml) == "ddp");
  CHECK(ours("distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: 2", "strategy.sharding_strategy", yaml) ==
        "shard_grad_op");
  CHECK(ours("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: false",
             "strategy.sharding_strategy", yaml) == "shard_grad_op");
  const std::string zero3 =
      "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 3\n"
      "  offload_param_device: cpu\n  offload_optimizer_device: cpu\n  gradient_clipping: 0.5";
  CHECK(ours(zero3, "strategy.plugin", yaml) == "zero3_offload");
  CHECK(ours(zero3, "precision.compute", yaml) == "bf16");
  CHECK(ours(zero3, "train.clip_norm", yaml) == 0.5);
  CHECK(ours(zero3, "optimizer.plugin", yaml).is_null());  // the script's, here this program's own
  const std::string machines = "distributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 8";
  CHECK(ours(machines, "launch.num_nodes", yaml) == 2);
  CHECK(ours(machines, "run.nproc", yaml) == 8);
  // One process, whatever the file says about their number.
  CHECK(ours("distributed_type: 'NO'\nnum_processes: 8", "run.nproc", yaml) == 1);
  CHECK(ours("distributed_type: NO", "run.nproc", yaml) == 1);
  CHECK(ours("distributed_type: MULTI_GPU", "run.nproc", yaml).is_null());
  CHECK_THAT(refusal("distributed_type: MEGATRON_LM", yaml), Catch::Contains("MEGATRON_LM"));
  CHECK_THAT(refusal("distributed_type: MULTI_GPU\nnum_proceses: 2", yaml),
             Catch::Contains("did you mean 'num_processes'?"));
  CHECK_THAT(refusal("distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: /none.json", yaml),
             Catch::Contains("/none.json"));
}

TEST_CASE("Accelerate: copies of sharded groups are hybrid sharding", "[foreign]") {
  const Setting yaml{4, "", {}, "accelerate"};
  const auto hybrid = [](const std::string& keys) {
    return "distributed_type: FSDP\nfsdp_config:\n" + keys +
           "parallelism_config:\n  parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 4\n";
  };
  const std::string second = hybrid("  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n");
  CHECK(ours(second, "strategy.sharding_strategy", yaml) == "hybrid_shard");
  CHECK(ours(second, "strategy.shard_size", yaml) == 4);
  CHECK(ours(hybrid("  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n"), "strategy.sharding_strategy", yaml) ==
        "hybrid_shard_zero2");
  CHECK(ours(hybrid("  fsdp_sharding_strategy: FULL_SHARD\n"), "strategy.sharding_strategy", yaml) == "hybrid_shard");
  const std::string all = "distributed_type: FSDP\nparallelism_config:\n  parallelism_config_dp_shard_size: 4\n";
  CHECK(ours(all, "strategy.sharding_strategy", yaml) == "full_shard");
  CHECK(ours(all, "strategy.shard_size", yaml).is_null());
  CHECK_THAT(refusal("distributed_type: FSDP\nparallelism_config:\n  parallelism_config_cp_size: 2\n", yaml),
             Catch::Contains("context parallelism"));
}

TEST_CASE("Accelerate: names of its oldest files", "[foreign]") {
  const Setting yaml{2, "", {}, "accelerate"};
  const std::string old =
      "distributed_type: FSDP\nfsdp_config:\n  sharding_strategy: 1\n  offload_params: true\n"
      "  auto_wrap_policy: SIZE_BASED_WRAP\n  min_num_params: 2000\n";
  CHECK(ours(old, "strategy.sharding_strategy", yaml) == "full_shard");
  CHECK(ours(old, "strategy.cpu_offload", yaml) == true);
  CHECK(ours(old, "strategy.min_num_params", yaml) == 2000);
}

TEST_CASE("an ill-formed table of files is refused", "[foreign]") {
  const auto refused = [](const std::string& keys) {
    return sentence_of([&] {
      read_foreign_table(
          "t.json", R"({"format": "t", "program": "T", "is": "a file of T", "newest": "1", "known_by": {}, "keys": {)" +
                        keys + "}}");
    });
  };
  CHECK(refused(R"("a": {"type": "integer", "to": "train.steps"})").empty());
  CHECK_THAT(refused(R"("a": {"type": "integer"})"), Catch::Contains("has no rule"));
  CHECK_THAT(refused(R"("a": {"rules": [{"is": 1}]})"), Catch::Contains("says nothing"));
  CHECK_THAT(refused(R"("a": {"rules": [{"too": "x"}]})"), Catch::Contains("unknown field 'too'"));
}

TEST_CASE("our configuration becomes a file of the other program, and means the same when it comes back", "[foreign]") {
  std::vector<std::pair<std::string, Json>> ours_before = {
      {"data.micro_batch", 6},     {"train.grad_accum_steps", 2},    {"train.clip_norm", 0.25},
      {"optimizer.lr", 1e-3},      {"optimizer.betas", {0.8, 0.99}}, {"optimizer.decay_groups", false},
      {"schedule.warmup_steps", 9}};
  using Values = std::vector<std::pair<std::string, Json>>;
  using Choice = std::pair<std::string, Values>;  // a value, and what comes with it
  const std::vector<Choice> strategies = {{"ddp", {}},
                                          {"zero1", {}},
                                          {"zero2", {}},
                                          {"zero3", {}},
                                          {"zero3_offload", {{"strategy.offload_param.device", "cpu"}}}};
  const std::vector<Choice> optimizers = {{"adamw", {}}, {"adam", {}}};
  const std::vector<Choice> schedules = {{"warmup", {}}, {"warmup_decay", {{"schedule.decay_steps", 40}}}};
  const std::vector<Choice> dtypes = {{"fp32", {}}, {"bf16", {}}, {"fp16", {{"precision.initial_scale_power", 11}}}};
  size_t count = 0;
  for (size_t i = 0; i < strategies.size() * optimizers.size() * schedules.size() * dtypes.size(); ++i, ++count) {
    Values before = ours_before;
    size_t rest = i;
    const auto choose = [&](const char* key, const std::vector<Choice>& choices) {
      const Choice& choice = choices[rest % choices.size()];
      rest /= choices.size();
      before.emplace_back(key, choice.first);
      before.insert(before.end(), choice.second.begin(), choice.second.end());
    };
    choose("strategy.plugin", strategies);
    choose("optimizer.plugin", optimizers);
    choose("schedule.type", schedules);
    choose("precision.compute", dtypes);
    const Reversed back = reversed(*foreign_table("deepspeed"), "", before);
    INFO(back.root.dump());
    CHECK(back.left_out.empty());
    const Translation again = translated(back.root.dump());
    CHECK(again.refused.empty());
    for (const auto& [key, value] : before) {
      INFO(key);
      CHECK(ours(again, key) == value);
    }
  }
  CHECK(count == 60);
  const Reversed other = reversed(*foreign_table("deepspeed"), "", {{"model.n_layer", 3}, {"data.micro_batch", 2}});
  CHECK(other.left_out == std::vector<std::string>{"model.n_layer"});
  const Reversed yaml = reversed(*foreign_table("accelerate"), "", {{"strategy.plugin", "fsdp"}, {"run.nproc", 4}});
  CHECK(yaml.root == Json({{"distributed_type", "FSDP"}, {"num_processes", 4}}));
}

TEST_CASE("a batch value of the command line replaces the file's, and must fit what the file still says", "[foreign]") {
  const std::string triple = "{train_batch_size: 8, train_micro_batch_size_per_gpu: 2, gradient_accumulation_steps: 2}";
  const auto on_line = [](const std::map<std::string, Json>& values) {
    Setting setting;
    setting.on_command_line = values;
    return setting;
  };
  const std::string sentence = refusal(triple, on_line({{"data.micro_batch", 4}}));
  CHECK_THAT(sentence, Catch::Contains("train_micro_batch_size_per_gpu (4, which you gave)") &&
                           Catch::Contains("train_batch_size (8)"));
  CHECK(!refusal(triple, on_line({{"train.grad_accum_steps", 1}})).empty());
  const Setting both = on_line({{"data.micro_batch", 4}, {"train.grad_accum_steps", 1}});
  CHECK(ours(triple, "data.micro_batch", both) == 4);
  CHECK(ours(triple, "train.grad_accum_steps", both) == 1);
  // Of a product and one factor the other factor follows.
  const std::string pair = "{train_batch_size: 8, train_micro_batch_size_per_gpu: 2}";
  CHECK(ours(pair, "train.grad_accum_steps", on_line({{"data.micro_batch", 1}})) == 4);
  // A value of another file does not replace it.
  CHECK(ours(triple, "data.micro_batch", {.ranks = 2, .given = {{"data.micro_batch", 4}}}) == 2);
}

TEST_CASE("a section is on however its switch is spelt", "[foreign]") {
  for (const char* word : {"true", "\"true\"", "\"True\"", "1", "\"1\"", "\"yes\""}) {
    INFO(word);
    for (const char* section : {"elasticity", "autotuning", "curriculum_learning", "hybrid_engine", "amp"})
      CHECK_THAT(refusal(with_batch(std::string(section) + ": {\"enabled\": " + word + "}")), Catch::Contains(section));
  }
  for (const char* word : {"false", "\"false\"", "0", "\"0\"", "null", "\"\""}) {
    INFO(word);
    CHECK(translated(with_batch(std::string("elasticity: {\"enabled\": ") + word + "}")).refused.empty());
  }
}

TEST_CASE("a section within a section is on if every level is", "[foreign]") {
  const auto text = [](const std::string& top, const std::string& routing, const std::string& method) {
    return with_batch("data_efficiency: {\"enabled\": " + top +
                      ", \"data_sampling\": {\"enabled\": false}, \"data_routing\": {\"enabled\": " + routing +
                      ", \"random_ltd\": {\"enabled\": " + method + "}}}");
  };
  CHECK_THAT(refusal(text("true", "true", "true")), Catch::Contains("data_efficiency"));
  CHECK(translated(text("false", "true", "true")).refused.empty());
  CHECK(translated(text("true", "false", "true")).refused.empty());
  CHECK(translated(text("true", "true", "false")).refused.empty());
}

TEST_CASE("the loss scale grows as in the version that is asked for", "[foreign]") {
  const std::string text = with_batch("fp16: {enabled: true}");
  CHECK(ours(text, "precision.loss_scale_growth") == "after_window");
  CHECK(ours(text, "precision.loss_scale_growth", {.version = "0.17.1"}) == "after_window");
  CHECK(ours(text, "precision.loss_scale_growth", {.version = "0.17.0"}) == "at_window_end");
  CHECK(ours(text, "precision.loss_scale_growth", {.version = "0.14"}) == "at_window_end");
}

TEST_CASE("a key without its condition is refused in words", "[foreign]") {
  const std::string sentence = refusal(optimizer("{type: 'SGD', params: {\"betas\": [0.9, 0.99]}}"));
  CHECK_THAT(sentence, Catch::Contains("with optimizer.type Adam or AdamW") && Catch::Contains("(it is SGD)"));
  CHECK(sentence.find('[') == std::string::npos);
  CHECK_THAT(refusal(with_batch("optimizer: {params: {lr: 1}}")),
             Catch::Contains("optimizer.type given (it is not given)"));
}

TEST_CASE("Accelerate's old key fp16 is a precision", "[foreign]") {
  const Setting accelerate{.ranks = 2, .format = "accelerate"};
  CHECK(ours("distributed_type: MULTI_GPU\nfp16: true\n", "precision.compute", accelerate) == "fp16");
  CHECK(ours("distributed_type: MULTI_GPU\nfp16: false\n", "precision.compute", accelerate) == "fp32");
  CHECK_THAT(refusal("distributed_type: MULTI_GPU\nfp16: true\nmixed_precision: bf16\n", accelerate),
             Catch::Contains("two names of one setting"));
}
