// SPDX-License-Identifier: Apache-2.0
//
// plan/continued.cpp: which options a resumed run may change, and what else gives it other bits.
#include "plan/continued.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "ddh/sdk/plugin.hpp"
#include "engine/loop/checkpointing.hpp"

namespace ddhost {
namespace {

// Sections, and options of other sections, that don't affect the values that a run computes.
constexpr std::array<std::string_view, 10> kFreeSections = {
    "run", "launch", "comm", "comm_host", kInsideCommSection, "device", "strategy", "monitor", "checkpoint", "profile"};
constexpr std::array<std::string_view, 7> kFreeOptions = {
    "data.micro_batch", "data.workers",    "train.grad_accum_steps", "train.recompute",
    "train.save_final", "train.init_from", "precision.max_skipped"};
// No options, but --resume-allow takes them.
constexpr const char* kInstructionSet = "host.instruction_set";
constexpr const char* kSampleOrder = "host.sample_order";
constexpr std::string_view kMicroBatchOf = "data.micro_batch_of.";  // data.micro_batch of single programs
// If one of these changed, the tensors or numbers of a checkpoint would have another meaning.
constexpr std::array<std::string_view, 5> kFixedOptions = {"model.plugin", "train.optimizers", "train.followers",
                                                           "train.programs", "train.phases"};

// A codec's state does not belong to the tensors, so another codec, or none, may go on.
bool is_plugin_choice(std::string_view key) {
  return (key.ends_with(".plugin") && key != "codec.plugin") || (key.starts_with("schedule") && key.ends_with(".type"));
}

bool is_free(std::string_view key) {
  if (key == "run.seed") return false;
  const std::string_view section = key.substr(0, key.find('.'));
  return key.starts_with(kMicroBatchOf) ||
         std::find(kFreeSections.begin(), kFreeSections.end(), section) != kFreeSections.end() ||
         std::find(kFreeOptions.begin(), kFreeOptions.end(), key) != kFreeOptions.end();
}

bool is_fixed(std::string_view key) {
  return std::find(kFixedOptions.begin(), kFixedOptions.end(), key) != kFixedOptions.end() || is_plugin_choice(key);
}

void flatten(const Json& object, const std::string& prefix, std::map<std::string, Json>& out) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_object())
      flatten(value, prefix + name + ".", out);
    else
      out[prefix + name] = value;
  }
}
}  // namespace

std::map<std::string, Json> flat(const Json& config) {
  std::map<std::string, Json> out;
  flatten(config, "", out);
  return out;
}

namespace {

// The same plugin may be at another path: "path/to/gpt.so:gpt" is "gpt". The micro-batches of phases may differ.
Json comparable(const std::string& key, const Json& value) {
  if (key == "train.phases") {
    Json phases = value;
    for (Json& phase : phases)
      if (phase.is_object()) phase.erase("micro_batch");
    return phases;
  }
  if (key == "train.followers" && value.is_array()) {
    Json ids = Json::array();
    for (const Json& choice : value) ids.push_back(comparable("follower.plugin", choice));
    return ids;
  }
  if (!is_plugin_choice(key) || !value.is_string()) return value;
  const auto text = value.get<std::string>();
  return text.substr(text.rfind(':') + 1);
}

// What `auto` meant when the checkpoint was saved: a plugin has recorded its choice, as model.matmul does.
bool was_chosen(const Json& before, const Json& now) { return now == "auto" && before.is_string() && before != now; }

}  // namespace

void keep_choices(const Json& saved_config, Config& config) {
  const std::map<std::string, Json> saved = flat(saved_config);
  for (const auto& [key, value] : flat(config.effective())) {
    const auto before = saved.find(key);
    if (before != saved.end() && !is_free(key) && was_chosen(before->second, value))
      config.set(key, before->second, "the checkpoint");
  }
}

void check_config(const Json& saved_config, const Config& config, const std::string& of) {
  const std::map<std::string, Json> saved = flat(saved_config), now = flat(config.effective());
  const auto allowed = config.get<std::vector<std::string>>("run.resume_allow");
  for (const std::string& key : allowed) {
    if (key == kInstructionSet || key == kSampleOrder) continue;
    if (!now.contains(key))
      ddh::fail(DDH_INVALID_ARGUMENT, "--resume-allow ", key,
                ": there is no such option; give a name such as optimizer.lr");
    if (is_fixed(key))
      ddh::fail(DDH_INVALID_ARGUMENT, "--resume-allow ", key,
                ": a run can't be resumed with another one; leave it out");
  }
  std::string differing;
  for (const auto& [key, value] : now) {
    const auto before = saved.find(key);
    // An option that the saving version did not have: its default is what that version did.
    const bool is_new = before == saved.end();
    if (is_free(key) || std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
    if (is_new ? config.find(key)->source == "default"
               : comparable(key, value) == comparable(key, config.meaning_of(key, before->second)))
      continue;
    if (!is_new && was_chosen(before->second, value)) continue;
    differing += ddh::str(differing.empty() ? "" : ", ", key, is_new ? " was not known" : " was ",
                          is_new ? "" : before->second.dump(), " and is ", value.dump());
  }
  if (!differing.empty())
    ddh::fail(DDH_FAILED_PRECONDITION, "the configuration differs from that of ", of, ": ", differing,
              "; restore the old values, or allow the new ones with --resume-allow (the model, optimizers, "
              "schedules, programs and phases can't change)");
}

namespace {

bool is_allowed(const Config& config, const char* key) {
  const auto allowed = config.get<std::vector<std::string>>("run.resume_allow");
  return std::find(allowed.begin(), allowed.end(), key) != allowed.end();
}

// Other instructions may give other bits. Returns a warning if that is allowed, "" if they are the same; throws otherwise.
std::string check_instruction_set(const Manifest& manifest, const PreparedRun& run, const std::string& of) {
  const auto saved = std::find_if(manifest.host.begin(), manifest.host.end(),
                                  [](const auto& entry) { return entry.first == "instruction_set"; });
  const std::string& now = run.instruction_set;
  if (saved == manifest.host.end() || saved->second == now) return "";
  if (is_allowed(run.config, kInstructionSet))
    return ddh::str(of, " was saved with the instructions of ", saved->second, ", and this run uses ", now,
                    ": the bits may differ from those of an uninterrupted run");
  ddh::fail(DDH_FAILED_PRECONDITION, of, " was saved with the instructions of ", saved->second, ", and this run uses ",
            now,
            ", which may give other bits; use the same ones (DDHOST_CPU lowers them, docs/numerics.md), or allow it ",
            "with --resume-allow ", kInstructionSet);
}

// An earlier ddhost ordered the samples of small sets otherwise. Returns a warning if that is allowed, "" if the order is
// the same; throws otherwise.
std::string check_sample_order(const Manifest& manifest, const Config& config, const std::string& of) {
  const std::string programs = programs_in_another_order(manifest, !config.text("data.order").empty());
  if (programs.empty()) return "";
  std::string what = ddh::str(of, " was saved by a version of ddhost that orders the samples of ", programs,
                              " otherwise: the bits will differ from those of an uninterrupted run, and samples ",
                              "of an epoch that has begun may come twice or not at all");
  if (is_allowed(config, kSampleOrder)) return what;
  ddh::fail(DDH_FAILED_PRECONDITION, what, "; resume with that version, or allow the new order with --resume-allow ",
            kSampleOrder);
}

using FlatConfig = std::map<std::string, Json>;

// The samples in a micro-batch of a program.
Json micro_batch(const FlatConfig& config, const std::string& program) {
  const auto own = config.find(std::string(kMicroBatchOf) + program), all = config.find("data.micro_batch");
  return own != config.end() ? own->second : all != config.end() ? all->second : Json();
}

// Those of the steps of a run: by program, or by phase where the run has phases.
using MicroBatches = std::map<std::string, Json>;
MicroBatches micro_batches(const FlatConfig& config, const std::set<std::string>& trained) {
  MicroBatches out;
  const auto phases = config.find("train.phases");
  for (size_t i = 0; phases != config.end() && i < phases->second.size(); ++i) {
    const Json& phase = phases->second[i];
    const Json names = phase.value("program", Json()), own = phase.value("micro_batch", Json());
    for (const Json& name : names.is_array() ? names : Json::array({names}))
      if (trained.contains(name.get<std::string>()))
        out[ddh::str(name.get<std::string>(), " in phase ", i + 1)] =
            own.is_null() ? micro_batch(config, name.get<std::string>()) : own;
  }
  if (out.empty())
    for (const std::string& program : trained) out[program] = micro_batch(config, program);
  return out;
}

// "that of 'eval' was 2048 and is 1024": programs that steps don't train, with micro-batches that differ.
std::string other_micro_batches(const FlatConfig& saved, const FlatConfig& now, const std::set<std::string>& trained) {
  std::set<std::string> programs;
  for (const FlatConfig* config : {&saved, &now})
    for (const auto& [key, value] : *config)
      if (key.starts_with(kMicroBatchOf)) programs.insert(key.substr(kMicroBatchOf.size()));
  std::string out;
  for (const std::string& program : programs) {
    const Json before = micro_batch(saved, program), after = micro_batch(now, program);
    if (trained.contains(program) || before == after) continue;
    out += ddh::str(out.empty() ? "" : ", ", "that of '", program, "' was ", before.dump(), " and is ", after.dump());
  }
  return out;
}

// "8", or "1024 (cf) and 2048 (kg)".
std::string sizes_text(const MicroBatches& sizes) {
  if (sizes.size() == 1) return sizes.begin()->second.dump();
  std::string out;
  size_t left = sizes.size();
  for (const auto& [name, size] : sizes)
    out += ddh::str(size.dump(), " (", name, ")", --left == 0 ? "" : left == 1 ? " and " : ", ");
  return out;
}

// Warnings about changes that give sums another order, or give other batches.
std::vector<std::string> differing_bits(const Manifest& manifest, const Config& config, int world_size) {
  const FlatConfig saved = flat(Json::parse(manifest.config)), now = flat(config.effective());
  std::set<std::string> trained;
  for (const ProgramProgress& program : manifest.progress.programs) trained.insert(program.name);
  const MicroBatches before = micro_batches(saved, trained), after = micro_batches(now, trained);
  const auto accumulated = saved.find("train.grad_accum_steps");
  const int64_t count_before =
      (accumulated == saved.end() ? 0 : accumulated->second.get<int64_t>()) * manifest.world_size;
  const int64_t count_now = config.get<int64_t>("train.grad_accum_steps") * world_size;
  const bool micro_first = config.get<std::string>("train.reduce_order") == "micro_first";
  std::vector<std::string> out;
  if (before != after || count_before != count_now)
    out.push_back(ddh::str("a step had ", count_before, " micro-batches of ", sizes_text(before), " samples and has ",
                           count_now, " of ", sizes_text(after), " now: the order of samples continues, but the bits ",
                           "will differ from those of an uninterrupted run"));
  else if (micro_first && manifest.world_size != world_size)
    out.push_back(ddh::str("train.reduce_order=micro_first sums in another order on ", world_size, " ranks than on ",
                           manifest.world_size, ": the bits will differ from those of an uninterrupted run"));
  if (const std::string others = other_micro_batches(saved, now, trained); !others.empty())
    out.push_back(ddh::str("the micro-batches of programs without training steps differ (", others,
                           "): their values may have other bits than in an uninterrupted run"));
  return out;
}

std::set<std::string> monitors_of(const Json& config) {
  std::set<std::string> ids;
  const auto at = config.find("monitor");
  if (at != config.end() && at->is_object() && at->contains("plugins"))
    for (const Json& plugin : at->at("plugins"))
      if (plugin.is_string()) ids.insert(comparable("monitor.plugin", plugin));
  return ids;
}

// A sentence about monitors that did not record the steps before the checkpoint; "" if there is none.
std::string newer_monitors(const Manifest& manifest, const Json& saved, const Config& config) {
  const std::set<std::string> before = monitors_of(saved);
  std::string names;
  for (const std::string& id : monitors_of(config.effective()))
    if (!before.contains(id)) names += (names.empty() ? "'" : ", '") + id + "'";
  return names.empty() ? ""
                       : ddh::str("the last steps up to ", manifest.progress.step, " were recorded without monitor ",
                                  names, ": its files lack their rows, or have rows of an earlier run");
}

}  // namespace

std::vector<std::string> check_manifest(const Manifest& manifest, const PreparedRun& run, const std::string& of) {
  std::vector<std::string> warnings = differing_bits(manifest, run.config, run.world_size);
  const std::string monitors =
      goes_on_in(run.run_dir, run.wish) ? newer_monitors(manifest, Json::parse(manifest.config), run.config) : "";
  for (const std::string& warning :
       {check_instruction_set(manifest, run, of), check_sample_order(manifest, run.config, of), monitors})
    if (!warning.empty()) warnings.push_back(warning);
  return warnings;
}

std::vector<std::string> continue_configuration(const Manifest& manifest, PreparedRun& run, const std::string& of) {
  const Json saved = Json::parse(manifest.config);
  check_config(saved, run.config, of);
  keep_choices(saved, run.config);
  return check_manifest(manifest, run, of);
}

RunPlan::MemoryResume memory_resume(const PreparedRun& run, uint64_t first_run, const std::string& otherwise) {
  return {first_run, otherwise, [&run](const Manifest& manifest, const std::string& of) {
            check_config(Json::parse(manifest.config), run.config, of);
            return check_manifest(manifest, run, of);
          }};
}

}  // namespace ddhost
