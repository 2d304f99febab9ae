// SPDX-License-Identifier: Apache-2.0
#include "config/foreign_file.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <sstream>
#include <string_view>

namespace ddhost {
namespace {

constexpr const char* kNotAll = "; the file's other settings are not among these";
constexpr const char* kOtherNames =
    "; the sections strategy, optimizer and schedule accept that program's names (docs/configuration.md, \"Names of "
    "other tools\")";

// Top-level keys that no section of ddhost has.
constexpr std::array<std::string_view, 12> kDeepSpeedKeys = {"zero_optimization",
                                                             "train_batch_size",
                                                             "train_micro_batch_size_per_gpu",
                                                             "gradient_accumulation_steps",
                                                             "fp16",
                                                             "bf16",
                                                             "gradient_clipping",
                                                             "steps_per_print",
                                                             "scheduler",
                                                             "wall_clock_breakdown",
                                                             "zero_allow_untested_optimizer",
                                                             "activation_checkpointing"};

void add_word(std::string& words, const std::string& word) { words += (words.empty() ? "" : " ") + word; }

// "train.clip_norm=1", if the file has a number or text under `key`. DeepSpeed's "auto" is left to the default.
void add_value(std::string& words, const Json& object, const char* key, const std::string& option) {
  const auto at = object.find(key);
  if (at == object.end() || at->is_structured() || at->is_null() || *at == "auto") return;
  add_word(words, option + "=" + (at->is_string() ? at->get<std::string>() : at->dump()));
}

bool is_enabled(const Json& root, const char* section) {
  const auto at = root.find(section);
  return at != root.end() && at->is_object() && at->value("enabled", Json(false)) == true;
}

// `optimizer_device`: where the file keeps the optimizer state; empty if it says nothing.
std::string zero_strategy(const std::string& stage, const std::string& optimizer_device, bool offloads_params) {
  const bool offloads = optimizer_device == "cpu" || optimizer_device == "nvme";
  if (stage == "3") return offloads || offloads_params ? "--strategy zero3_offload" : "--strategy zero3";
  if (stage != "1" && stage != "2") return "--strategy ddp";
  return "--strategy zero" + stage + (offloads ? " strategy.offload_optimizer.device=" + optimizer_device : "");
}

// The text of a member `device` of object[section]; empty if there is none.
std::string device_of(const Json& object, const char* section) {
  const auto at = object.find(section);
  if (at == object.end() || !at->is_object()) return "";
  const auto device = at->find("device");
  return device != at->end() && device->is_string() ? device->get<std::string>() : "";
}

std::string deepspeed_words(const Json& root) {
  std::string words;
  const auto zero = root.find("zero_optimization");
  if (zero != root.end() && zero->is_object()) {
    const auto stage = zero->find("stage");
    add_word(words, zero_strategy(stage == zero->end() ? "0" : stage->dump(), device_of(*zero, "offload_optimizer"),
                                  zero->contains("offload_param")));
  }
  const auto optimizer = root.find("optimizer");
  if (optimizer != root.end() && optimizer->is_object()) {
    if (const auto type = optimizer->find("type"); type != optimizer->end() && type->is_string()) {
      std::string name = type->get<std::string>();
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      add_word(words, "--optimizer " + name);
    }
    if (const auto params = optimizer->find("params"); params != optimizer->end() && params->is_object())
      add_value(words, *params, "lr", "optimizer.lr");
  }
  add_value(words, root, "train_micro_batch_size_per_gpu", "data.micro_batch");
  add_value(words, root, "gradient_accumulation_steps", "train.grad_accum_steps");
  add_value(words, root, "gradient_clipping", "train.clip_norm");
  if (is_enabled(root, "fp16")) add_word(words, "precision.compute=fp16");
  if (is_enabled(root, "bf16")) add_word(words, "precision.compute=bf16");
  return words;
}

// The "key: value" lines of a YAML file, at any depth.
std::map<std::string, std::string> yaml_lines(const std::string& text) {
  std::map<std::string, std::string> out;
  std::istringstream in(text);
  const auto trimmed = [](const std::string& part) {
    const std::string_view around = " \t\r'\"";
    const size_t begin = part.find_first_not_of(around), end = part.find_last_not_of(around);
    return begin == std::string::npos ? std::string() : part.substr(begin, end - begin + 1);
  };
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (colon != std::string::npos) out[trimmed(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
  }
  return out;
}

// Accelerate also writes its configuration as JSON.
std::map<std::string, std::string> json_lines(const Json& object) {
  std::map<std::string, std::string> out;
  for (const auto& [key, value] : object.items()) {
    if (value.is_object())
      for (const auto& [inner, text] : json_lines(value)) out[inner] = text;
    else
      out[key] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  return out;
}

std::string accelerate_words(const std::map<std::string, std::string>& lines) {
  std::string words;
  const auto value = [&](const char* key) {
    const auto at = lines.find(key);
    return at == lines.end() ? std::string() : at->second;
  };
  const std::string type = value("distributed_type");
  if (type == "FSDP")
    add_word(words, "--strategy fsdp");
  else if (type == "DEEPSPEED")
    add_word(words, zero_strategy(value("zero_stage"), value("offload_optimizer_device"), false));
  else
    add_word(words, "--strategy ddp");
  if (!value("num_processes").empty()) add_word(words, "--nproc " + value("num_processes"));
  if (const std::string precision = value("mixed_precision"); precision == "fp16" || precision == "bf16")
    add_word(words, "precision.compute=" + precision);
  if (!value("gradient_accumulation_steps").empty())
    add_word(words, "train.grad_accum_steps=" + value("gradient_accumulation_steps"));
  if (!value("gradient_clipping").empty()) add_word(words, "train.clip_norm=" + value("gradient_clipping"));
  return words;
}

}  // namespace

std::string foreign_file_text(const std::string& text, const Json& root) {
  const std::map<std::string, std::string> lines = root.is_object() ? json_lines(root) : yaml_lines(text);
  if (lines.contains("distributed_type") && (lines.contains("compute_environment") || lines.contains("num_processes")))
    return "is a configuration of Accelerate, which --config does not read; give instead: " + accelerate_words(lines) +
           kNotAll + kOtherNames;
  const bool is_deepspeed =
      root.is_object() && std::any_of(kDeepSpeedKeys.begin(), kDeepSpeedKeys.end(),
                                      [&](std::string_view key) { return root.contains(std::string(key)); });
  if (!is_deepspeed) return "";
  const std::string words = deepspeed_words(root);
  return "is a configuration of DeepSpeed, which --config does not read" +
         (words.empty() ? "" : "; give instead: " + words + kNotAll) + kOtherNames;
}

}  // namespace ddhost
