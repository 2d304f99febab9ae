// SPDX-License-Identifier: Apache-2.0
//
// config/host_schema.cpp: the host's own options. configs/defaults.json has the default plugins.
#include "config/host_schema.hpp"

#include <algorithm>
#include <array>

#include "config/compat.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

struct SectionText {
  const char* name;
  const char* schema;
};

constexpr const char* kRun = R"json({"properties": {
  "name": {"type": "string", "default": "", "description": "name of the run; empty means <model>-<strategy>"},
  "dir": {"type": "string", "default": "", "x-path": true,
    "description": "folder for metrics, configuration and log; empty means runs/<name>, with -2, -3 ... if it exists"},
  "seed": {"type": "integer", "default": 1337, "minimum": 0, "description": "seed of initial weights, sample order, dropout"},
  "nproc": {"type": ["integer", "null"], "default": null, "minimum": 1, "maximum": 1048576,
    "description": "number of ranks (a run: at most 1024); null means one for each device that is present, or 2"},
  "ranks_per_node": {"type": "integer", "default": 0, "minimum": 0, "maximum": 1048576,
    "description": "simulate nodes with this number of ranks each; 0 means one node"},
  "sample_tokens": {"type": "integer", "default": 160, "minimum": 0, "maximum": 1000000,
    "description": "number of items that the trained model generates at the end of the run; 0 means none"},
  "sample_prompt": {"type": "string", "default": "", "description": "text that the samples begin with"},
  "sample_temperature": {"type": "number", "default": 1, "minimum": 0,
    "description": "divide the logits by this before an item is drawn; 0 means always the most likely item"},
  "sample_top_k": {"type": "integer", "default": 0, "minimum": 0, "maximum": 2147483647,
    "description": "draw from the k most likely items; 0 means from all items"},
  "sample_count": {"type": "integer", "default": 1, "minimum": 1, "maximum": 1000000,
    "description": "number of samples; their seeds are run.seed, run.seed + 1 ..."},
  "sample_condition": {"type": ["integer", "null"], "default": null, "minimum": 0,
    "description": "index of the eval sample (an image, points) to generate for; null means none"},
  "watchdog": {"type": "number", "default": 10, "minimum": 0, "maximum": 1000000, "x-unit": "s",
    "description": "a plugin call that takes longer is reported on stderr, again whenever its time has doubled; 0: off"},
  "plan_check": {"type": "string", "default": "auto", "enum": ["auto", "warn", "error"],
    "description": "end of a run whose strategy took more memory than planned; auto: error if it ships with ddhost"},
  "allow_overcommit": {"type": "boolean", "default": false,
    "description": "start a run whose plan does not fit into the memory that is free"},
  "watchdog_abort": {"type": "number", "default": 300, "minimum": 0, "maximum": 1000000, "x-unit": "s",
    "description": "end the run if a plugin call takes longer; 0, or run.watchdog=0, means never"},
  "format": {"type": "string", "default": "auto",
    "description": "plugin that reads weights of other programs: auto asks each, or name, path or path:id"},
  "convert_memory": {"type": "string", "default": "auto",
    "description": "most memory of the process that reads weights of other programs: 8GiB; auto: a quarter of the machine's"},
  "check_plugins": {"type": "boolean", "default": false,
    "description": "check rules of the plugin headers that cost time: repeat each update on copies, look at padding"},
  "resume": {"type": "string", "default": "none",
    "description": "resume from a checkpoint: auto (newest in run.dir), its folder, a run's folder, or none"},
  "resume_allow": {"type": "array", "items": {"type": "string"}, "default": [],
    "description": "options that may differ from the checkpoint, such as optimizer.lr or train.steps"},
  "check_replicas": {"type": ["integer", "null"], "default": null, "minimum": 0, "maximum": 1000000000,
    "x-unit": "steps", "x-spellings": {"auto": null, "off": 0},
    "description": "steps from one comparison of the ranks' replicas to the next; auto (null): after 1, 2, 4, 8, ... steps"},
  "quiet": {"type": "boolean", "default": false, "description": "print warnings and errors only"},
  "known_curve": {"type": "string", "default": "", "x-path": true,
    "description": "file of the documented losses of this configuration, with which the run is compared; empty: none"},
  "report": {"type": "boolean", "default": true,
    "description": "write a page about the run, report.html, into its folder when it ends"}
}})json";

constexpr const char* kData = R"json({"properties": {
  "path": {"type": "string", "default": "", "x-path": true, "description": "training data: a file or a folder"},
  "val_path": {"type": "string", "default": "", "x-path": true,
    "description": "data for evaluation; empty means the last part of data.path, of size val_fraction"},
  "val_fraction": {"type": "number", "default": 0.1, "minimum": 0, "maximum": 0.9,
    "description": "part of data.path that is kept for evaluation when val_path is empty"},
  "micro_batch": {"type": "integer", "default": 12, "minimum": 1, "maximum": 1048576, "x-unit": "samples",
    "description": "samples per rank and micro-batch; data.micro_batch.<program> sets it for one program"},
  "micro_batch_of": {"type": ["object", "null"], "default": null, "x-unit": "samples",
    "description": "{program: samples}, of which data.micro_batch.<program> sets one; null: data.micro_batch for all"},
  "workers": {"type": "integer", "default": 1, "minimum": 1, "maximum": 16, "x-unit": "threads",
    "description": "threads per rank that read and decode batches in advance"},
  "drop_last": {"type": ["boolean", "null"], "default": null,
    "description": "incomplete last step of an epoch: true skips it, false makes it smaller, null fills it from the next"},
  "dummy_samples": {"type": "integer", "default": 0, "minimum": 0, "maximum": 16777216, "x-unit": "samples",
    "description": "made-up samples, written to data.path if that does not exist; 0: the model's default, none written"},
  "order": {"type": "string", "default": "", "x-path": true,
    "description": "file of int64 sample indices to use in this order; empty means a permutation by seed and epoch"}
}})json";

constexpr const char* kTrain = R"json({"properties": {
  "steps": {"type": "integer", "default": 200, "minimum": 0, "description": "number of steps (updates of the parameters)"},
  "epochs": {"type": ["integer", "null"], "default": null, "minimum": 1,
    "description": "passes over the samples of the first training program, instead of train.steps"},
  "phases": {"type": "array", "items": {"type": "object"}, "default": [],
    "description": "phases in order, each {program, steps or epochs, lr, schedule, optimizer, micro_batch}"},
  "cycles": {"type": "integer", "default": 1, "minimum": 1, "description": "number of times to run all phases"},
  "programs": {"type": "array", "items": {"type": "string"}, "default": [],
    "description": "training programs, which alternate step by step; empty means all, in the model's order"},
  "optimizers": {"type": "array", "items": {"type": "string"}, "default": ["optimizer"], "minItems": 1, "maxItems": 64,
    "description": "sections: optimizer, optimizer_<name>; each program of the model gives an index in this list"},
  "followers": {"type": "array", "items": {"type": "string"}, "default": [], "maxItems": 64,
    "description": "optimizers that follow the others, such as averages of the weights: names, paths or path:id"},
  "grad_accum_steps": {"type": "integer", "default": 1, "minimum": 1, "maximum": 1048576,
    "description": "micro-batches per step and rank"},
  "clip_norm": {"type": "number", "default": 1.0, "minimum": 0,
    "description": "largest norm of the gradient; 0 means no clipping"},
  "clip_value": {"type": "number", "default": 0, "minimum": 0,
    "description": "clamp each element of the gradient to this magnitude; 0: off; else clip_norm defaults to 0"},
  "recompute": {"type": "integer", "default": 0, "minimum": 0, "maximum": 1024, "x-unit": "units",
    "description": "activation checkpointing: every n-th unit runs forward again before its backward; 0: none, 1: all",
    "x-affects": "memory"},
  "sync_buffers": {"type": "boolean", "default": true,
    "description": "at the start of each step, copy rank 0's values of buffers with DDH_SYNC_STEP to all ranks"},
  "reduce_order": {"type": "string", "enum": ["rank_first", "micro_first"], "default": "rank_first",
    "description": "rank_first: sum over ranks after every micro-batch; micro_first: each rank adds its own, one sum a step"},
  "reduce_block": {"type": "integer", "default": 1, "minimum": 0, "maximum": 1024, "x-unit": "ranks",
    "description": "number of consecutive ranks whose gradients are summed first; 0 means 1"},
  "update_every": {"type": "integer", "default": 0, "minimum": 0, "x-unit": "steps",
    "description": "steps from one run of the model's update programs to the next; 0 means never"},
  "skip_nonfinite": {"type": "boolean", "default": true,
    "description": "skip a step whose gradients hold NaN or infinity"},
  "init_from": {"type": ["string", "array"], "items": {"type": "object"}, "default": "", "x-path": true,
    "description": "initial weights: a safetensors file or a folder of them, or a list of {file, prefix, ...}"},
  "save_final": {"type": "string", "default": "", "x-path": true,
    "description": "safetensors file for the final weights; empty means none"},
  "eval_every": {"type": "integer", "default": 0, "minimum": 0, "x-unit": "steps",
    "description": "steps from one evaluation to the next; 0 means never"},
  "eval_every_epochs": {"type": "integer", "default": 0, "minimum": 0, "x-unit": "epochs",
    "description": "epochs of the first training program from one evaluation to the next, instead of train.eval_every"},
  "eval_batches": {"type": "integer", "default": 20, "minimum": 0, "x-spellings": {"all": 0},
    "description": "most micro-batches of an evaluation, divided among the ranks; all (0) means every sample once"},
  "eval_weights": {"type": "string", "default": "auto",
    "description": "weights of evaluations and files: trained, an optimizer's or a follower's; auto: the one that shows any"},
  "patience": {"type": "integer", "default": 0, "minimum": 0, "x-unit": "evaluations",
    "description": "end the run after this number of evaluations without an improvement; 0 means never"},
  "patience_metric": {"type": "string", "default": "loss",
    "description": "value of the evaluation that train.patience compares"},
  "patience_mode": {"type": "string", "enum": ["min", "max"], "default": "min",
    "description": "whether lower or higher values of train.patience_metric are better"}
}})json";

constexpr const char* kPrecision = R"json({"properties": {
  "compute": {"type": "string", "enum": ["fp32", "bf16", "fp16"], "default": "fp32",
    "description": "dtype of forward and backward; master weights and optimizer state are fp32"},
  "reduce_dtype": {"type": "string", "enum": ["fp32", "bf16"], "default": "fp32",
    "description": "dtype to which each rank's gradients are rounded before they are summed over ranks in fp32"},
  "loss_scale": {"type": "number", "default": 0, "minimum": 0,
    "description": "fixed loss scale, a power of two; 0 means dynamic with fp16 and 1 otherwise"},
  "initial_scale_power": {"type": "integer", "default": 16, "minimum": 0, "maximum": 64,
    "description": "the dynamic loss scale begins at 2 to this power"},
  "loss_scale_window": {"type": "integer", "default": 1000, "minimum": 1, "x-unit": "steps",
    "description": "steps without overflow after which the loss scale rises"},
  "loss_scale_factor": {"type": "number", "default": 2, "minimum": 2, "maximum": 65536,
    "description": "factor by which the loss scale rises and falls"},
  "min_loss_scale": {"type": "number", "default": 1, "exclusiveMinimum": 0, "description": "smallest loss scale"},
  "hysteresis": {"type": "integer", "default": 2, "minimum": 1,
    "description": "number of the overflow at which the scale first falls; it falls at each later one until a reset"},
  "consecutive_hysteresis": {"type": "boolean", "default": false,
    "description": "reset the count of overflows after each good step, not only after a rise"},
  "loss_scale_at_min": {"type": "string", "enum": ["raise", "keep"], "default": "raise",
    "description": "an overflow at the smallest loss scale ends the run (raise) or skips the step (keep)"},
  "max_skipped": {"type": "integer", "default": 100, "minimum": 0, "x-unit": "steps",
    "description": "the run ends after this number of skipped steps in a row; 0 means never"},
  "loss_scale_growth": {"type": "string", "enum": ["after_window", "at_window_end"],
    "default": "after_window", "description": "the first rise is one step after the window, or at its end"}
}})json";

constexpr const char* kComm = R"json({"properties": {
  "plugin": {"type": "string", "default": "",
    "description": "transport between all ranks: name, path or path:id; auto: comm.inside, on several hosts comm.between too"},
  "inside": {"type": "string", "default": "",
    "description": "transport between ranks of one host; section comm_inside has its options where there are several hosts"},
  "host": {"type": "string", "default": "",
    "description": "transport of host memory beside one of device memory; section comm_host has its options"},
  "between": {"type": "string", "default": "",
    "description": "transport between hosts, and between all ranks where each host has one; auto: the default"},
  "windows": {"type": "string", "enum": ["auto", "copy"], "default": "auto",
    "description": "auto uses shared pages if the transport has them; copy always uses private copies"},
  "overlap": {"type": "string", "enum": ["auto", "true", "false"], "default": "auto",
    "description": "true: where ranks share no pages, a thread sums gradients during the backward; auto: on several hosts"},
  "poison": {"type": "boolean", "default": false,
    "description": "fill released memory of parameters with NaN (for tests)"}
}})json";

constexpr const char* kMonitor = R"json({"properties": {
  "plugins": {"type": "array", "items": {"type": "string"}, "default": [],
    "description": "monitors that record the run: names, paths or path:id"},
  "every": {"type": "integer", "default": 1, "minimum": 1, "x-unit": "steps",
    "description": "steps from one recorded row to the next"},
  "progress": {"type": "string", "enum": ["auto", "on", "off"], "default": "auto",
    "description": "auto: a line that is redrawn on a terminal, else plain lines; on: always the first; off: none"},
  "page": {"type": "string", "default": "",
    "description": "address of this machine where a browser sees the run while it goes on: 127.0.0.1:0; empty: none"},
  "print_every": {"type": "number", "default": 10, "minimum": 0, "maximum": 1000000, "x-unit": "s",
    "description": "seconds between plain lines of progress, of which each tenth of the steps has one too; 0: no such lines"}
}})json";

constexpr const char* kCheckpoint = R"json({"properties": {
  "every": {"type": "integer", "default": 0, "minimum": 0, "x-unit": "steps",
    "description": "steps from one checkpoint to the next; 0 means not by steps"},
  "every_epochs": {"type": "integer", "default": 0, "minimum": 0, "x-unit": "epochs",
    "description": "epochs of the first training program from one checkpoint to the next; 0 means not by epochs"},
  "every_minutes": {"type": "number", "default": 0, "minimum": 0, "maximum": 1000000, "x-unit": "min",
    "description": "minutes from one checkpoint to the next; 0 means not by time"},
  "memory_every": {"type": "integer", "default": 0, "minimum": 0, "x-unit": "steps",
    "description": "steps between checkpoints in this host's memory, from which launch.max_restarts goes on; 0: none there"},
  "memory_copies": {"type": "integer", "default": 1, "minimum": 1, "maximum": 2,
    "description": "hosts that keep each part of them; 2: also the next host, so that a run goes on if a host is lost"},
  "at_phase_end": {"type": "boolean", "default": true,
    "description": "also save after the last step of each phase, if checkpoints are on"},
  "on_exit": {"type": "boolean", "default": true,
    "description": "a run that a signal ends saves one after its step, also where checkpoints are off; false: only if on"},
  "async": {"type": "boolean", "default": true,
    "description": "write a copy while training continues; false: training waits until the checkpoint is on the disk"},
  "max_bytes_in_flight": {"type": "integer", "default": 0, "minimum": 0, "x-unit": "bytes",
    "description": "with async: most bytes of a copy in a rank's memory; training waits for the rest; 0 means no limit"},
  "keep_last": {"type": "integer", "default": 2, "minimum": 0,
    "description": "number of newest checkpoints that are kept; 0 means all"},
  "keep_every": {"type": "integer", "default": 0, "minimum": 0, "x-unit": "steps",
    "description": "checkpoints whose step is a multiple of this are kept too; 0 means none"},
  "best": {"type": "object", "properties": {
    "metric": {"type": "string", "default": "",
      "description": "save and keep the checkpoint of the best evaluation by this value; empty means no"},
    "mode": {"type": "string", "enum": ["min", "max"], "default": "min",
      "description": "whether lower or higher values of checkpoint.best.metric are better"}}}
}})json";

constexpr const char* kProfile = R"json({"properties": {
  "steps": {"type": "string", "default": "",
    "description": "steps whose time is measured, with a trace of each rank: 20-25, 20, or auto (five after two); empty: none"}
}})json";

constexpr const char* kSchedule = R"json({"properties": {
  "type": {"type": "string", "default": "",
    "description": "the learning-rate schedule: name, path or path:id, or its class in another program"}
  }, "x-aliases": {"plugin": {"key": "type"}}})json";

constexpr const char* kLaunch = R"json({"properties": {
  "from": {"type": "string", "default": "auto",
    "description": "the program that has started the tasks of a run on several hosts: auto, none, or its name"},
  "rendezvous": {"type": "string", "default": "", "x-path": true,
    "description": "file through which tasks find each other, on a disk that all hosts share; empty: one in ~/.ddhost"},
  "interface": {"type": "string", "default": "",
    "description": "network interface or address of this host for the other hosts; empty: the one that leads to them"},
  "ports": {"type": "string", "default": "",
    "description": "ports on which a run listens for its other hosts, such as 4000-4010; empty: any"},
  "hostfile": {"type": "string", "default": "", "x-path": true,
    "description": "start the run over SSH on the hosts in this file: a line for each, such as node1 slots=4"},
  "include": {"type": "string", "default": "",
    "description": "hosts of the hostfile that take part, and slots of them: node1@node2:0,2"},
  "exclude": {"type": "string", "default": "", "description": "hosts, or slots, that do not take part, as for include"},
  "num_nodes": {"type": "integer", "default": 0, "minimum": 0, "maximum": 1024,
    "description": "number of hosts of the hostfile that take part, from the first on; 0: all"},
  "nproc_per_node": {"type": "integer", "default": 0, "minimum": 0, "maximum": 1024,
    "description": "ranks on each host of the hostfile; 0: its slots"},
  "ssh_config": {"type": "string", "default": "", "x-path": true, "description": "configuration file for ssh -F"},
  "export": {"type": "array", "items": {"type": "string"}, "default": [],
    "description": "further environment variables for the other hosts; NAME* means all that begin so"},
  "timeout": {"type": "number", "default": 120, "minimum": 1, "maximum": 1000000, "x-unit": "s",
    "description": "wait this long for the other tasks of a run on several hosts, and at a restart for silent hosts"},
  "heartbeat": {"type": "number", "default": 5, "minimum": 0.1, "maximum": 1000000, "x-unit": "s",
    "description": "end the run if nothing is heard of a host for this time"},
  "output": {"type": "string", "default": "auto", "enum": ["auto", "plain", "prefix", "files"],
    "description": "where ranks print: plain; prefix (lines begin with [host rank]); files (output/ in run.dir); )json"
                                R"json(auto: prefix for all but rank 0 if there are several launchers, else plain"},
  "max_restarts": {"type": "integer", "default": 0, "minimum": 0, "maximum": 1000,
    "description": "after a failure start the ranks again this many times; they resume from the newest checkpoint"},
  "min_nodes": {"type": "integer", "default": 0, "minimum": 0, "maximum": 1024,
    "description": "a run of a hostfile starts again without hosts that are gone if this many are left; 0: only with all"},
  "grace": {"type": "number", "default": 10, "minimum": 0, "maximum": 1000000, "x-unit": "s",
    "description":
      "after SIGTERM, end ranks that begin and end no call for this time, or 1.5 times the longest call's; 0: never"}
}})json";

const std::array<SectionText, 16> kSections = {{
    {"run", kRun},
    {"launch", kLaunch},
    {"data", kData},
    {"model", R"json({"properties": {
      "plugin": {"type": "string", "default": "", "description": "the model: name, path or path:id"}}})json"},
    {"train", kTrain},
    {"precision", kPrecision},
    {"strategy", R"json({"properties": {
      "plugin": {"type": "string", "default": "", "description": "the strategy: name, path or path:id"}}})json"},
    {"optimizer", R"json({"properties": {
      "plugin": {"type": "string", "default": "", "description": "the optimizer: name, path or path:id"}}})json"},
    {"follower", R"json({"properties": {}})json"},
    {"schedule", kSchedule},
    {"codec", R"json({"properties": {
      "plugin": {"type": "string", "default": "none",
        "description": "codec that compresses gradients between ranks: none, or name, path or path:id"}}})json"},
    {"comm", kComm},
    {"device", R"json({"properties": {
      "plugin": {"type": "string", "default": "auto",
        "description": "where the ranks compute: auto (devices that are present, or the CPU), or name, path or path:id"
        }}})json"},
    {"monitor", kMonitor},
    {"profile", kProfile},
    {"checkpoint", kCheckpoint},
}};

constexpr std::array<std::string_view, 9> kPluginSections = {"model",  "strategy", "optimizer", "follower", "comm",
                                                             "device", "schedule", "monitor",   "codec"};

// Of configs/defaults.json; nullptr: it gives none.
const Json* default_of(const std::string& section, const std::string& option) {
  const auto at = default_options().find(section);
  if (at == default_options().end()) return nullptr;
  const auto value = at->find(option);
  return value == at->end() ? nullptr : &*value;
}

}  // namespace

std::vector<Section> host_sections() {
  std::vector<Section> sections;
  for (const SectionText& text : kSections) {
    sections.push_back({text.name, parse_schema(text.schema, "section '" + std::string(text.name) + "'"), ""});
    for (Option& option : sections.back().schema.options)
      if (const Json* const given = default_of(text.name, option.name)) option.preset = *given;
    add_foreign_names(sections, text.name, "section", text.name);
  }
  return sections;
}

Schema add_plugin_options(std::vector<Section>& sections, const std::string& section, const char* schema_text,
                          const std::string& owner, const std::string& prefix) {
  const auto at = std::find_if(sections.begin(), sections.end(), [&](const Section& s) { return s.name == section; });
  if (at == sections.end()) ddh::fail(DDH_INTERNAL, "there is no section '", section, "' for ", owner);
  if (prefix.empty()) at->plugin = owner;
  Schema more = parse_schema(schema_text, owner);
  for (Option& option : more.options) option.name = prefix + option.name;
  for (Alias& alias : more.aliases) alias = {prefix + alias.name, prefix + alias.key, alias.scale, alias.defaults};
  for (const Option& option : more.options) {
    if (at->schema.find(option.name) != nullptr)
      ddh::fail(DDH_INVALID_ARGUMENT, owner, " has an option '", option.name, "', but section '", section,
                "' has a host option of this name; rename it in the plugin");
    at->schema.options.push_back(option);
  }
  at->schema.aliases.insert(at->schema.aliases.end(), more.aliases.begin(), more.aliases.end());
  return more;
}

bool is_plugin_section(std::string_view section) {
  return section == kHostCommSection || section == kInsideCommSection || section.starts_with(kFurtherOptimizer) ||
         section.starts_with(kFurtherSchedule) ||
         std::find(kPluginSections.begin(), kPluginSections.end(), section) != kPluginSections.end();
}

}  // namespace ddhost
