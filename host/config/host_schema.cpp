// SPDX-License-Identifier: Apache-2.0
//
// config/host_schema.cpp: the host's own options. Plugins are named here as defaults only.
#include "config/host_schema.hpp"

#include <algorithm>
#include <array>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

struct SectionText {
  const char* name;
  const char* schema;
};

constexpr const char* kRun = R"json({"properties": {
  "name": {"type": "string", "default": "", "description": "name of the run; empty: <model>-<strategy>"},
  "dir": {"type": "string", "default": "", "x-path": true,
    "description": "folder for metrics.jsonl, config and log; empty: runs/<name>, with -2, -3 ... when it exists"},
  "seed": {"type": "integer", "default": 1337, "minimum": 0, "description": "initial weights, sample order, dropout"},
  "nproc": {"type": ["integer", "null"], "default": null, "minimum": 1, "maximum": 1024,
    "description": "number of ranks; null: the GPUs of this machine, else 2"},
  "ranks_per_node": {"type": "integer", "default": 0, "minimum": 0, "maximum": 1024,
    "description": "simulated nodes of so many ranks; 0: one node"},
  "sample_tokens": {"type": "integer", "default": 160, "minimum": 0, "maximum": 1000000,
    "description": "length of the text sampled from the trained model at the run's end; 0: none"},
  "sample_prompt": {"type": "string", "default": "", "description": "what the sampled text begins with"},
  "sample_temperature": {"type": "number", "default": 1, "minimum": 0,
    "description": "divides the logits before an item is drawn; 0: always the most likely one"},
  "sample_top_k": {"type": "integer", "default": 0, "minimum": 0, "maximum": 2147483647,
    "description": "draw from so many of the most likely items; 0: from all"},
  "sample_condition": {"type": ["integer", "null"], "default": null, "minimum": 0,
    "description": "index of a sample of the eval program (an image, points) to make the text for; null: none"},
  "watchdog": {"type": "number", "default": 10, "minimum": 0, "maximum": 1000000, "x-unit": "s",
    "description": "name the rank, plugin and call that the others wait for after so long, then after twice as long; 0: off"},
  "watchdog_abort": {"type": "number", "default": 300, "minimum": 0, "maximum": 1000000, "x-unit": "s",
    "description": "end the run when one call of a plugin lasts longer; 0: never"},
  "quiet": {"type": "boolean", "default": false, "description": "print warnings and errors only"}
}})json";

constexpr const char* kData = R"json({"properties": {
  "path": {"type": "string", "default": "", "x-path": true, "description": "training data: a file or a folder"},
  "val_path": {"type": "string", "default": "", "x-path": true,
    "description": "data for evaluation; empty: the part of data.path that val_fraction cuts off its end"},
  "val_fraction": {"type": "number", "default": 0.1, "minimum": 0, "maximum": 0.9,
    "description": "part of data.path that is kept for evaluation when val_path is empty"},
  "micro_batch": {"type": "integer", "default": 12, "minimum": 1, "maximum": 1048576, "x-unit": "samples",
    "description": "samples per rank and micro-batch"},
  "drop_last": {"type": ["boolean", "null"], "default": null,
    "description": "samples of an epoch that fill no step: true leaves them out, false makes a smaller one; null: no seam"},
  "order": {"type": "string", "default": "", "x-path": true,
    "description": "file of int64 sample indices to use in turn; empty: a permutation by (seed, epoch)"}
}})json";

constexpr const char* kTrain = R"json({"properties": {
  "steps": {"type": "integer", "default": 200, "minimum": 0, "description": "updates of the parameters"},
  "programs": {"type": "array", "items": {"type": "string"}, "default": [],
    "description": "train programs of the model that take turns, one a step; empty: all, in the model's order"},
  "optimizers": {"type": "array", "items": {"type": "string"}, "default": ["optimizer"], "minItems": 1, "maxItems": 64,
    "description": "sections of the optimizers that the model's programs name: optimizer, then optimizer_<name>"},
  "grad_accum_steps": {"type": "integer", "default": 1, "minimum": 1, "maximum": 1048576,
    "description": "micro-batches per step and rank"},
  "clip_norm": {"type": "number", "default": 1.0, "minimum": 0, "description": "largest gradient norm; 0: no clipping"},
  "clip_value": {"type": "number", "default": 0, "minimum": 0,
    "description": "largest magnitude of an element of the gradient, instead of clip_norm; 0: no clipping"},
  "recompute": {"type": "integer", "default": 0, "minimum": 0, "maximum": 1024, "x-unit": "units",
    "description": "every so many units drop their activations and run forward again before backward; 0: none, 1: all",
    "x-affects": "memory"},
  "sync_buffers": {"type": "boolean", "default": true,
    "description": "buffers with DDH_SYNC_STEP are rank 0's on all ranks at the begin of each step"},
  "reduce_order": {"type": "string", "enum": ["rank_first", "micro_first"], "default": "rank_first",
    "description": "the micro-batches of all ranks are one sum in a fixed order, or each rank adds its own first"},
  "reduce_block": {"type": "integer", "default": 1, "minimum": 0, "maximum": 1024, "x-unit": "ranks",
    "description": "the micro-batches of this many ranks are added up first, then to the sum of the step; 0: as 1"},
  "update_every": {"type": "integer", "default": 0, "minimum": 0, "x-unit": "steps",
    "description": "run the model's update programs after every so many steps; 0: never"},
  "skip_nonfinite": {"type": "boolean", "default": true, "description": "skip a step whose gradients hold nan or inf"},
  "init_from": {"type": "string", "default": "", "x-path": true, "description": "safetensors file of initial weights"},
  "save_final": {"type": "string", "default": "", "x-path": true,
    "description": "safetensors file for the final weights; empty: none"},
  "eval_every": {"type": "integer", "default": 0, "minimum": 0, "x-unit": "steps",
    "description": "evaluate after so many steps; 0: never"},
  "eval_batches": {"type": "integer", "default": 20, "minimum": 1,
    "description": "micro-batches of all ranks together in an evaluation"}
}})json";

constexpr const char* kPrecision = R"json({"properties": {
  "compute": {"type": "string", "enum": ["fp32", "bf16", "fp16"], "default": "fp32",
    "x-spellings": {"float32": "fp32", "torch.float32": "fp32", "bfloat16": "bf16", "torch.bfloat16": "bf16",
      "float16": "fp16", "torch.float16": "fp16"},
    "description": "data type of forward and backward; masters and optimizer state are fp32"},
  "reduce_dtype": {"type": "string", "enum": ["fp32", "bf16"], "default": "fp32",
    "x-spellings": {"float32": "fp32", "torch.float32": "fp32", "bfloat16": "bf16", "torch.bfloat16": "bf16"},
    "description": "what each rank's gradients are rounded to before they are summed over the ranks, in fp32"},
  "loss_scale": {"type": "number", "default": 0, "minimum": 0,
    "description": "a fixed factor of the loss, a power of two; 0: 1, and with fp16 found while training"},
  "initial_scale_power": {"type": "integer", "default": 16, "minimum": 0, "maximum": 64,
    "description": "the scale begins at 2 to this"},
  "loss_scale_window": {"type": "integer", "default": 1000, "minimum": 1, "x-unit": "steps",
    "description": "the scale rises after so many steps without overflow"},
  "loss_scale_factor": {"type": "number", "default": 2, "minimum": 2, "maximum": 65536,
    "description": "by what the scale rises and falls"},
  "min_loss_scale": {"type": "number", "default": 1, "exclusiveMinimum": 0, "description": "smallest scale"},
  "hysteresis": {"type": "integer", "default": 2, "minimum": 1,
    "description": "the scale falls at this overflow; earlier ones are let pass"},
  "consecutive_hysteresis": {"type": "boolean", "default": false,
    "description": "count overflows anew after each good step, not only after a rise"},
  "loss_scale_at_min": {"type": "string", "enum": ["raise", "keep"], "default": "raise",
    "description": "an overflow at the smallest scale ends the run, or is skipped like others"},
  "loss_scale_growth": {"type": "string", "enum": ["deepspeed", "torch"], "default": "deepspeed",
    "description": "deepspeed: the first rise is one step after the window; torch: at its end"}
}})json";

constexpr const char* kComm = R"json({"properties": {
  "plugin": {"type": "string", "default": "shm", "description": "transport between ranks: name, path or path:id"},
  "windows": {"type": "string", "enum": ["auto", "copy"], "default": "auto",
    "description": "auto: shared pages where the transport has them; copy: always private copies"},
  "poison": {"type": "boolean", "default": false, "description": "fill released parameter memory with nan (for tests)"}
}})json";

constexpr const char* kMonitor = R"json({"properties": {
  "plugins": {"type": "array", "items": {"type": "string"}, "default": ["jsonl"],
    "description": "monitors that record the run, each a name, path or path:id; options are below their names"},
  "every": {"type": "integer", "default": 1, "minimum": 1, "x-unit": "steps",
    "description": "record one row every so many steps"},
  "progress": {"type": "string", "enum": ["auto", "on", "off"], "default": "auto",
    "description": "the progress line; auto: only on a terminal"}
}})json";

// DeepSpeed's and torch's classes are further words for the schedules of this program.
constexpr const char* kSchedule = R"json({"properties": {
  "type": {"type": "string", "default": "cosine",
    "x-spellings": {"OneCycleLR": "one_cycle", "ReduceLROnPlateau": "plateau", "WarmupLR": "warmup",
      "WarmupDecayLR": "warmup_decay", "WarmupCosineLR": "warmup_cosine", "OneCycle": "cycle"},
    "description": "the learning-rate schedule: name, path or path:id, or its class in DeepSpeed or torch"}
  }, "x-aliases": {"plugin": {"key": "type"}}})json";

const std::array<SectionText, 11> kSections = {{
    {"run", kRun},
    {"data", kData},
    {"model", R"json({"properties": {
      "plugin": {"type": "string", "default": "gpt", "description": "the model: name, path or path:id"}}})json"},
    {"train", kTrain},
    {"precision", kPrecision},
    {"strategy", R"json({"properties": {
      "plugin": {"type": "string", "default": "ddp", "description": "the strategy: name, path or path:id"}}})json"},
    {"optimizer", R"json({"properties": {
      "plugin": {"type": "string", "default": "adamw", "description": "the optimizer: name, path or path:id"}}})json"},
    {"schedule", kSchedule},
    {"comm", kComm},
    {"device", R"json({"properties": {
      "plugin": {"type": "string", "default": "cpu",
        "description": "where the ranks compute: cpu (built in), or name, path or path:id"}}})json"},
    {"monitor", kMonitor},
}};

constexpr std::array<std::string_view, 7> kPluginSections = {"model",  "strategy", "optimizer", "comm",
                                                             "device", "schedule", "monitor"};

}  // namespace

std::vector<Section> host_sections() {
  std::vector<Section> sections;
  for (const SectionText& text : kSections)
    sections.push_back({text.name, parse_schema(text.schema, "section '" + std::string(text.name) + "'"), ""});
  return sections;
}

void add_plugin_options(std::vector<Section>& sections, const std::string& section, const char* schema_text,
                        const std::string& owner, const std::string& prefix) {
  const auto at = std::find_if(sections.begin(), sections.end(), [&](const Section& s) { return s.name == section; });
  if (at == sections.end()) ddh::fail(DDH_INTERNAL, "there is no section '", section, "' for ", owner);
  if (prefix.empty()) at->plugin = owner;
  Schema more = parse_schema(schema_text, owner);
  for (Option& option : more.options) option.name = prefix + option.name;
  for (Alias& alias : more.aliases) alias = {prefix + alias.name, prefix + alias.key, alias.scale};
  for (const Option& option : more.options) {
    if (at->schema.find(option.name) != nullptr)
      ddh::fail(DDH_INVALID_ARGUMENT, owner, " has an option '", option.name, "', which in section '", section,
                "' is the host's; rename it in the plugin");
    at->schema.options.push_back(option);
  }
  at->schema.aliases.insert(at->schema.aliases.end(), more.aliases.begin(), more.aliases.end());
}

bool is_plugin_section(std::string_view section) {
  return section.starts_with(kFurtherOptimizer) ||
         std::find(kPluginSections.begin(), kPluginSections.end(), section) != kPluginSections.end();
}

}  // namespace ddhost
