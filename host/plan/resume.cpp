// SPDX-License-Identifier: Apache-2.0
#include "plan/resume.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/memory_folder.hpp"
#include "ddh/sdk/kernels/counter_rng.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/loop/checkpointing.hpp"
#include "engine/record/step_count.hpp"
#include "plugin/elf_note.hpp"

namespace fs = std::filesystem;

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
std::map<std::string, Json> flat(const Json& config) {
  std::map<std::string, Json> out;
  flatten(config, "", out);
  return out;
}

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

// A resumed run keeps these choices, which its bits rest on, also where `auto` would choose anew.
void keep_choices(const Json& saved_config, Config& config) {
  const std::map<std::string, Json> saved = flat(saved_config);
  for (const auto& [key, value] : flat(config.effective())) {
    const auto before = saved.find(key);
    if (before != saved.end() && !is_free(key) && was_chosen(before->second, value))
      config.set(key, before->second, "the checkpoint");
  }
}

// Throws the list of what differs and is not allowed to.
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

// Compares the run's configuration with that of the checkpoint and keeps the choices that `auto` made there. Returns
// warnings about other bits. Throws if they do not fit.
std::vector<std::string> continue_configuration(const Manifest& manifest, PreparedRun& run, const fs::path& folder) {
  const std::string of = "'" + folder.string() + "'";
  const Json saved = Json::parse(manifest.config);
  check_config(saved, run.config, of);
  const std::string other_instructions = check_instruction_set(manifest, run, of);
  const std::string other_order = check_sample_order(manifest, run.config, of);
  const std::string monitors = goes_on_in(run.run_dir, run.wish) ? newer_monitors(manifest, saved, run.config) : "";
  keep_choices(saved, run.config);
  std::vector<std::string> warnings = differing_bits(manifest, run.config, run.world_size);
  for (const std::string& warning : {other_instructions, other_order, monitors})
    if (!warning.empty()) warnings.push_back(warning);
  return warnings;
}

std::string names_of(const std::vector<CheckpointPlace>& places) {
  std::string out;
  for (const CheckpointPlace& place : places) out += (out.empty() ? "" : ", ") + place.folder.filename().string();
  return out;
}

// By the options of its configuration.
bool saves_checkpoints(const std::map<std::string, Json>& options) {
  const auto is_on = [&](const char* key) { return options.contains(key) && options.at(key) != 0; };
  const auto best = options.find("checkpoint.best.metric");
  const bool by_evaluation = best != options.end() && !best->second.get<std::string>().empty();
  return by_evaluation || is_on("checkpoint.every") || is_on("checkpoint.every_epochs") ||
         is_on("checkpoint.every_minutes");
}

// Whether the first checkpoint of checkpoint.memory_every may not have been whole after this step.
bool is_before_memory(const std::map<std::string, Json>& options, int64_t step) {
  const auto every = options.find("checkpoint.memory_every");
  return every != options.end() && every->second.is_number_integer() && step <= 2 * every->second.get<int64_t>();
}

// A run that was killed before its first checkpoint starts again. Any other run must not lose its rows: a sentence, else "".
std::string what_is_lost(const PreparedRun& run, const std::optional<StepNumbers>& numbers, const Json& saved) {
  const std::string of = "'" + run.run_dir.string() + "'";
  if (numbers ? numbers->steps == 0 : saved.is_null()) return "";
  if (numbers && numbers->begun > 0 && numbers->saved == 0)
    return ddh::str("the run in ", of, " began with the checkpoint of step ", numbers->begun,
                    " of another run and has saved none itself; name that checkpoint with --resume PATH and ",
                    "another run.dir");
  if (numbers && numbers->saved > 0)
    return ddh::str(of, " holds a run up to step ", numbers->steps, " with a checkpoint of step ", numbers->saved,
                    ", which is not there any more (a damaged one is renamed to damaged-step-N); name a checkpoint ",
                    "with --resume PATH, or choose another run.dir");
  const auto options = saved.is_object() ? flat(saved) : std::map<std::string, Json>{};
  if (saves_checkpoints(options) || (numbers && is_before_memory(options, numbers->steps))) return "";
  return ddh::str(of,
                  run.memory_by_host ? " holds a run of which neither the disk nor the memory of the hosts has a whole "
                                       "checkpoint, so it can't be resumed; "
                                     : " holds a run without checkpoints, which can't be resumed; ",
                  "choose another run.dir, or name a checkpoint with --resume PATH");
}

// Of the run in the folder; null: it has not begun to train.
Json saved_config(const PreparedRun& run) {
  std::ifstream file(run.run_dir / "config.json");  // written when the training begins
  return file.is_open() ? Json::parse(file, nullptr, /*allow_exceptions=*/false) : Json();
}

void require_nothing_to_lose(const PreparedRun& run) {
  const std::optional<StepNumbers> numbers = read_step_numbers(run.run_dir);
  const Json saved = saved_config(run);
  if (numbers ? numbers->steps == 0 : saved.is_null()) return;
  if (const std::string lost = what_is_lost(run, numbers, saved); !lost.empty()) ddh::fail(DDH_NOT_FOUND, lost);
  check_config(saved, run.config, "the run in '" + run.run_dir.string() + "'");
}

// The hosts may have a checkpoint in memory that this process does not see: the ranks look for it.
void look_in_memory(PreparedRun& run, bool has_none_on_disk) {
  const std::optional<StepNumbers> numbers = read_step_numbers(run.run_dir);
  if (!run.memory_by_host || !numbers || numbers->steps == 0) return;
  run.memory_resume.emplace(RunPlan::MemoryResume{numbers->steps, ""});
  if (!has_none_on_disk) return;
  const Json saved = saved_config(run);
  run.memory_resume->otherwise = what_is_lost(run, numbers, saved);
  if (!saved.is_object()) return;
  check_config(saved, run.config, "the run in '" + run.run_dir.string() + "'");
  keep_choices(saved, run.config);
}

std::vector<std::string> choose_newest(PreparedRun& run) {
  const std::vector<CheckpointPlace> places =
      run.memory_by_host ? list_checkpoints(run.run_dir) : resumable_checkpoints(run.run_dir);
  std::vector<std::string> warnings;
  look_in_memory(run, places.empty());
  if (places.empty() && run.memory_resume)
    return {"there is no checkpoint in '" + run.run_dir.string() +
            "' yet: the run goes on from one in the memory of its hosts" +
            (run.memory_resume->otherwise.empty() ? ", or begins at step 1" : "")};
  if (places.empty()) {
    require_nothing_to_lose(run);
    std::string none = "there is no checkpoint in '" + run.run_dir.string() + "' yet: the run begins at step 1";
    remove_memory_folder(run.run_dir);  // of a run that was here before
    if (!saves_checkpoints(flat(run.config.effective())) && run.config.get<int64_t>("checkpoint.memory_every") == 0)
      none += run.config.get<bool>("checkpoint.on_exit")
                  ? ", and saves a checkpoint only if it is stopped; give checkpoint.every or "
                    "checkpoint.every_minutes, so that "
                    "a crash can be resumed too"
                  : ", and saves none (checkpoint.every, checkpoint.every_minutes), so it can't be resumed either";
    return {none};
  }
  std::optional<Manifest> newest;
  std::string damages;
  for (const CheckpointPlace& place : places) {
    try {
      Manifest manifest = open_checkpoint(place.folder);
      run.resume.push_back(place.folder);
      if (!newest) newest = std::move(manifest);
    } catch (const ddh::Error& error) {
      if (!is_damage(error))
        throw ddh::Error(error.code(),
                         ddh::str(error.what(), "; the checkpoint may be whole, so no older one is used"));
      damages += (damages.empty() ? "" : "; ") + std::string(error.what());
      warnings.push_back(ddh::str(error.what(), "; an older checkpoint is used"));
    }
  }
  if (!newest)
    ddh::fail(DDH_DATA_LOSS, "all checkpoints in '", run.run_dir.string(), "' are damaged (", names_of(places),
              "): ", damages, "; `ddhost ckpt verify` shows more. Start again with --resume none and another ",
              "run.dir, or name a checkpoint with --resume PATH");
  for (std::string& sentence : continue_configuration(*newest, run, run.resume.front()))
    warnings.push_back(std::move(sentence));
  return warnings;
}

std::vector<std::string> choose_named(PreparedRun& run, const fs::path& folder) {
  const Manifest manifest = open_checkpoint(folder);
  std::vector<std::string> warnings = continue_configuration(manifest, run, folder);
  run.resume = {folder};
  std::vector<CheckpointPlace> later = list_checkpoints(run.run_dir);
  std::erase_if(later, [&](const CheckpointPlace& place) { return place.step <= manifest.progress.step; });
  if (!later.empty())
    ddh::fail(DDH_ALREADY_EXISTS, "'", run.run_dir.string(), "' holds checkpoints of later steps (", names_of(later),
              "), which would be mixed with the new ones; leave out run.dir, or remove them with `ddhost ckpt prune ",
              run.run_dir.string(), " --after ", manifest.progress.step, "`");
  return warnings;
}

}  // namespace

ResumeWish resume_wish(const UserConfig& user, const Config& config) {
  const std::string& text = config.text("run.resume");
  if (text == "none") return {};
  if (text == "auto") return {ResumeWish::From::newest, {}};
  const Wish* const wish = user.find("run.resume");
  const fs::path base = wish == nullptr ? fs::current_path() : wish->base;
  fs::path folder = (base / text).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  return {ResumeWish::From::path, folder};
}

std::vector<CheckpointPlace> resumable_checkpoints(const fs::path& run_dir) {
  std::vector<CheckpointPlace> places = list_checkpoints(run_dir);
  const std::optional<StepNumbers> numbers = read_step_numbers(run_dir);
  if (!numbers) return places;
  const std::vector<CheckpointPlace> in_memory = list_memory_checkpoints(run_dir, numbers->steps);
  places.insert(places.end(), in_memory.begin(), in_memory.end());
  std::stable_sort(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return places;
}

bool goes_on_in(const fs::path& run_dir, const ResumeWish& wish) {
  if (wish.from != ResumeWish::From::path) return wish.from == ResumeWish::From::newest;
  std::error_code ec;
  return fs::equivalent(wish.checkpoint.parent_path(), checkpoints_folder(run_dir), ec);
}

void require_checkpoint(const PreparedRun& run) {
  if (run.wish.from != ResumeWish::From::path) return;
  const fs::path& folder = run.wish.checkpoint;
  std::error_code ec;
  if (fs::is_directory(folder, ec) && fs::exists(folder / "manifest.json", ec)) return;
  const fs::path of_run = folder.filename() == "checkpoints" ? folder.parent_path() : folder;
  const std::string inside = names_of(list_checkpoints(of_run)), here = names_of(list_checkpoints(run.run_dir));
  ddh::fail(DDH_NOT_FOUND, "--resume '", folder.string(), "' is not a checkpoint",
            inside.empty() ? "" : "; it holds the checkpoints " + inside,
            here.empty() || here == inside ? "" : "; run.dir holds the checkpoints " + here,
            "; give the folder of a checkpoint, or auto with run.dir, or none");
}

std::vector<std::string> choose_checkpoints(PreparedRun& run) {
  if (run.wish.from == ResumeWish::From::newest) return choose_newest(run);
  std::vector<std::string> warnings;
  if (run.wish.from == ResumeWish::From::path) warnings = choose_named(run, run.wish.checkpoint);
  // What a run that was killed here with its launcher has left there is no part of this one.
  if (!run.run_dir.empty()) remove_memory_folder(run.run_dir);
  return warnings;
}

namespace {

uint64_t hash_of(const Plugin& plugin) {
  if (plugin.desc == nullptr) return 0;  // none
  std::string libraries;
  for (const ForeignLibrary& library : libraries_of(*plugin.module->build)) libraries += library.text() + ' ';
  return ddh::fnv1a(ddh::str(plugin.id(), ' ', plugin.desc->version, ' ', plugin.module->build->abi_major, '.',
                             plugin.module->build->abi_minor, ' ', plugin.module->build->header_checksum, ' ',
                             libraries, read_elf(plugin.file).build_id));
}

uint64_t hash_of(const std::vector<RunPlan::Optimizer>& optimizers) {
  std::string text;
  for (const RunPlan::Optimizer& optimizer : optimizers)
    text += ddh::str(optimizer.section, ' ', hash_of(optimizer.plugin), ' ');
  return ddh::fnv1a(text);
}

}  // namespace

std::vector<Fingerprint> fingerprints_of(const PreparedRun& run) {
  return {{"strategy", hash_of(run.strategy)},
          {"model", hash_of(run.model)},
          {"optimizer", hash_of(run.optimizers)},
          {"follower", hash_of(run.followers)},
          {"comm plugin", hash_of(run.comm)},
          {"comm.host plugin", hash_of(run.host_comm)},
          {"comm.inside plugin", hash_of(run.inside_comm)},
          {"codec", hash_of(run.codec)},
          {"device plugin", hash_of(run.device)},
          {"schedule", hash_of(run.schedule)},
          {"ABI", ddh::fnv1a(ddh::str(DDH_ABI_MAJOR, '.', DDH_ABI_MINOR, ' ', DDH_HEADER_CHECKSUM))},
          {"configuration", ddh::fnv1a(run.config.effective().dump())}};
}

}  // namespace ddhost
