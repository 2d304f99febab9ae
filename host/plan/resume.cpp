// SPDX-License-Identifier: Apache-2.0
#include "plan/resume.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/host_parts.hpp"
#include "checkpoint/memory_folder.hpp"
#include "ddh/sdk/kernels/counter_rng.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/record/step_count.hpp"
#include "plan/continued.hpp"
#include "plugin/elf_note.hpp"

namespace fs = std::filesystem;

namespace ddhost {

namespace {

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

// Of the run in the folder; null: it has not begun to train.
Json saved_config(const PreparedRun& run) {
  std::ifstream file(run.run_dir / "config.json");  // written when the training begins
  return file.is_open() ? Json::parse(file, nullptr, /*allow_exceptions=*/false) : Json();
}

// What is known of the run in the folder, where the disk has no checkpoint of it.
struct RunThere {
  std::optional<StepNumbers> numbers;
  Json saved;  // its configuration
  explicit RunThere(const PreparedRun& run) : numbers(read_step_numbers(run.run_dir)), saved(saved_config(run)) {}
  [[nodiscard]] bool has_steps() const { return numbers ? numbers->steps > 0 : !saved.is_null(); }
};

// A run that was killed before its first checkpoint starts again. Any other run must not lose its rows: a sentence, else "".
std::string what_is_lost(const PreparedRun& run, const RunThere& there) {
  const std::string of = "'" + run.run_dir.string() + "'";
  const std::optional<StepNumbers>& numbers = there.numbers;
  if (!there.has_steps()) return "";
  if (numbers && numbers->begun > 0 && numbers->saved == 0)
    return ddh::str("the run in ", of, " began with the checkpoint of step ", numbers->begun,
                    " of another run and has saved none itself; name that checkpoint with --resume PATH and ",
                    "another run.dir");
  if (numbers && numbers->saved > 0)
    return ddh::str(of, " holds a run up to step ", numbers->steps, " with a checkpoint of step ", numbers->saved,
                    ", which is not there any more (a damaged one is renamed to damaged-step-N); name a checkpoint ",
                    "with --resume PATH, or choose another run.dir");
  const auto options = there.saved.is_object() ? flat(there.saved) : std::map<std::string, Json>{};
  if (saves_checkpoints(options) || (numbers && is_before_memory(options, numbers->steps))) return "";
  return ddh::str(of,
                  run.memory_resume ? " holds a run of which neither the disk nor the memory of the hosts has a whole "
                                      "checkpoint, so it can't be resumed; "
                                    : " holds a run without checkpoints, which can't be resumed; ",
                  "choose another run.dir, or name a checkpoint with --resume PATH");
}

std::string all_are_damaged(const PreparedRun& run, const std::vector<CheckpointPlace>& places,
                            const std::string& damages) {
  return ddh::str("all checkpoints in '", run.run_dir.string(), "' are damaged (", names_of(places), "): ", damages,
                  "; `ddhost ckpt verify` shows more. Start again with --resume none and another run.dir, or name a ",
                  "checkpoint with --resume PATH");
}

// Sets RunPlan::resume to those that can be opened, and returns the manifest of the newest.
std::optional<Manifest> open_newest(PreparedRun& run, const std::vector<CheckpointPlace>& places, std::string& damages,
                                    std::vector<std::string>& warnings) {
  std::optional<Manifest> newest;
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
  return newest;
}

// That of --resume PATH, with which a run that starts again has begun.
std::optional<Manifest> open_first(PreparedRun& run, const RunThere& there, std::string& damages) {
  if (run.wish.otherwise.empty()) return std::nullopt;
  try {
    Manifest first = open_checkpoint(run.wish.otherwise);
    if (there.numbers && there.numbers->begun != first.progress.step) return std::nullopt;
    run.resume = {run.wish.otherwise};
    return first;
  } catch (const ddh::Error& error) {
    if (!run.memory_resume || !is_damage(error)) throw;  // the hosts may have one in memory
    damages = error.what();
    return std::nullopt;
  }
}

// Whether a folder of parts is of the run that is known by this number.
bool has_part_of(const fs::path& folder, uint64_t first_run) {
  const std::map<int32_t, std::optional<Part>> parts = list_parts(folder);
  return std::any_of(parts.begin(), parts.end(),
                     [&](const auto& entry) { return entry.second && entry.second->head.first_run == first_run; });
}

// Throws if this host's memory has a checkpoint after `step` that this run can't read and would remove: one of several hosts
// where it has this one alone, or the other way round.
void require_no_newer_of_others(const PreparedRun& run, const RunThere& there, int64_t step) {
  if (!there.numbers || !has_memory_folder(run.run_dir)) return;
  const bool by_host = run.memory_by_host;
  std::vector<CheckpointPlace> others =
      by_host ? list_memory_checkpoints(run.run_dir, there.numbers->steps) : list_checkpoints(parts_root(run.run_dir));
  std::erase_if(others, [&](const CheckpointPlace& place) {
    return place.step <= step || (!by_host && !has_part_of(place.folder, there.numbers->first_run));
  });
  if (others.empty()) return;
  const std::string folder = memory_folder(run.run_dir).string();
  ddh::fail(DDH_FAILED_PRECONDITION, "the memory of this host has ", by_host ? "a" : "parts of a",
            " checkpoint of step ", others.front().step, " (", folder, "), which the run in '", run.run_dir.string(),
            "' has saved ", by_host ? "on this host alone" : "on several hosts", " and ",
            by_host ? "several hosts" : "one host", " can't go on from; start it ",
            by_host ? "without other hosts" : "with its hosts (launch.hostfile)", ", or remove ", folder,
            " to go on from an older one");
}

std::string says_none(const PreparedRun& run) {
  std::string none = "there is no checkpoint in '" + run.run_dir.string() + "' yet: the run begins at step 1";
  if (!saves_checkpoints(flat(run.config.effective())) && run.config.get<int64_t>("checkpoint.memory_every") == 0)
    none += run.config.get<bool>("checkpoint.on_exit")
                ? ", and saves a checkpoint only if it is stopped; give checkpoint.every or checkpoint.every_minutes, "
                  "so that a crash can be resumed too"
                : ", and saves none (checkpoint.every, checkpoint.every_minutes), so it can't be resumed either";
  return none;
}

std::vector<std::string> choose_newest(PreparedRun& run) {
  const std::vector<CheckpointPlace> places =
      run.memory_by_host ? list_checkpoints(run.run_dir) : resumable_checkpoints(run.run_dir);
  std::vector<std::string> warnings;
  std::string damages;
  const RunThere there(run);
  // The hosts may have a checkpoint in memory that this process does not see: the ranks look for it.
  if (run.memory_by_host && there.numbers && there.numbers->steps > 0 && there.numbers->first_run != 0)
    run.memory_resume = memory_resume(run, there.numbers->first_run, "");
  std::optional<Manifest> newest = open_newest(run, places, damages, warnings);
  if (places.empty()) newest = open_first(run, there, damages);
  require_no_newer_of_others(run, there, newest ? newest->progress.step : 0);
  if (newest) {
    for (std::string& one : continue_configuration(*newest, run, "'" + run.resume.front().string() + "'"))
      warnings.push_back(std::move(one));
    return warnings;
  }
  const std::string otherwise = places.empty() ? what_is_lost(run, there) : all_are_damaged(run, places, damages);
  if (!run.memory_resume && !otherwise.empty()) ddh::fail(places.empty() ? DDH_NOT_FOUND : DDH_DATA_LOSS, otherwise);
  if (there.has_steps() && there.saved.is_object())
    check_config(there.saved, run.config, "the run in '" + run.run_dir.string() + "'");
  if (!run.memory_resume) return {says_none(run)};
  run.memory_resume->otherwise = otherwise;
  if (there.saved.is_object()) keep_choices(there.saved, run.config);
  return {(damages.empty() ? "there is no checkpoint in '" + run.run_dir.string() + "' yet: " : damages + "; ") +
          "the run goes on from one in the memory of its hosts" + (otherwise.empty() ? ", or begins at step 1" : "")};
}

std::vector<std::string> choose_named(PreparedRun& run, const fs::path& folder) {
  const Manifest manifest = open_checkpoint(folder);
  std::vector<std::string> warnings = continue_configuration(manifest, run, "'" + folder.string() + "'");
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
  std::vector<std::string> warnings;
  if (run.wish.from == ResumeWish::From::newest) warnings = choose_newest(run);
  if (run.wish.from == ResumeWish::From::path) warnings = choose_named(run, run.wish.checkpoint);
  // What another run that was killed here with its launcher has left there is no part of this one.
  const bool goes_on = run.memory_by_host ? run.memory_resume.has_value() : !run.resume.empty();
  const bool is_newest = run.wish.from == ResumeWish::From::newest;
  if (!run.run_dir.empty() && !(is_newest && goes_on)) remove_memory_folder(run.run_dir);
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
