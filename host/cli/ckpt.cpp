// SPDX-License-Identifier: Apache-2.0
//
// cli/ckpt.cpp: `ddhost ckpt`: lists, shows, verifies, compares, removes and imports checkpoints.
#include <algorithm>
#include <array>
#include <cstdio>
#include <ostream>

#include "base/durable.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/safetensors.hpp"
#include "checkpoint/whole_checkpoints.hpp"
#include "cli/commands.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/record/step_count.hpp"
#include "launch/launch.hpp"
#include "plan/convert.hpp"
#include "plan/run_lock.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

std::string mib_text(uint64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f MiB", static_cast<double>(bytes) / (1024.0 * 1024.0));
  return text.data();
}

uint64_t bytes_of(const Manifest& manifest) {
  uint64_t bytes = 0;
  for (const Manifest::File& file : manifest.files) bytes += file.bytes;
  return bytes;
}

std::string plugin_of(const Manifest& manifest, std::string_view kind) {
  const auto at = std::find_if(manifest.plugins.begin(), manifest.plugins.end(),
                               [&](const UsedPlugin& note) { return note.kind == kind; });
  return at == manifest.plugins.end() ? "?" : at->id;
}

// The checkpoint that a path stands for.
fs::path one_of(const fs::path& path) {
  NamedCheckpoint named = named_checkpoint(path);
  for (const std::string& note : named.notes) print_sentence(note);
  return named.folder;
}

// All checkpoints of a run, the oldest first. Error: there is none.
std::vector<CheckpointPlace> checkpoints_in(const fs::path& path) {
  std::vector<CheckpointPlace> places = list_checkpoints(run_folder_of(path));
  if (places.empty()) ddh::fail(DDH_NOT_FOUND, "'", path.string(), "' holds no checkpoints; give the folder of a run");
  std::reverse(places.begin(), places.end());
  return places;
}

int print(const Json& json, std::ostream& out, int code = 0) {
  out << json_document(json);
  return code;
}

int list(const fs::path& path, bool as_json, std::ostream& out) {
  const std::optional<int64_t> best = best_step(run_folder_of(path));
  Json all = Json::array();
  for (const CheckpointPlace& place : checkpoints_in(path)) {
    Json one = {{"step", place.step}, {"folder", place.folder.string()}, {"is_best", place.step == best}};
    if (!as_json) out << place.folder.filename().string() << (place.step == best ? "  best" : "") << "  ";
    try {
      const Manifest manifest = open_checkpoint(place.folder);
      const std::string model = plugin_of(manifest, "model"), strategy = plugin_of(manifest, "strategy");
      one.update({{"bytes", bytes_of(manifest)},
                  {"model", model},
                  {"strategy", strategy},
                  {"world_size", manifest.world_size}});
      if (!as_json)
        out << mib_text(bytes_of(manifest)) << "  " << model << ", " << strategy << " on "
            << counted(static_cast<uint64_t>(manifest.world_size), "rank") << '\n';
    } catch (const ddh::Error& damage) {
      one["damage"] = damage.what();
      if (!as_json) out << "damaged: " << damage.what() << '\n';
    }
    all.push_back(std::move(one));
  }
  return as_json ? print(all, out) : 0;
}

void show_progress(const TrainProgress& progress, std::ostream& out) {
  out << "step            " << progress.step << (progress.evaluation_pending ? " (its evaluation is not done)" : "")
      << '\n';
  out << "phase           " << progress.phase + 1 << " (counted over all cycles), " << progress.phase_step
      << " steps of it done\n";
  for (const ProgramProgress& p : progress.programs)
    out << "program         " << p.name << ": " << p.samples << " samples, epoch "
        << (p.epoch_samples == 0 ? 0 : p.samples / p.epoch_samples) << '\n';
  out << "loss scale      " << progress.loss_scale.scale << '\n';
  std::vector<OptimizerProgress> instances = progress.optimizers;
  instances.insert(instances.end(), progress.followers.begin(), progress.followers.end());
  for (const OptimizerProgress& o : instances) {
    out << "optimizer       " << o.section << ": " << o.plugin << ' ' << o.version;
    if (o.state_version != 0) out << ", state version " << o.state_version;
    for (const auto& [name, value] : o.numbers) out << ", " << name << ' ' << value;
    for (const auto& schedule : o.schedules)
      for (const auto& [name, value] : schedule) out << ", " << name << ' ' << value;
    out << '\n';
  }
}

int show(const fs::path& path, bool as_json, std::ostream& out) {
  const fs::path folder = one_of(path);
  const Manifest manifest = open_checkpoint(folder);
  if (as_json) return print(read_json(read_whole(folder / "manifest.json")), out);
  show_progress(manifest.progress, out);
  for (const UsedPlugin& note : manifest.plugins) {
    std::string kind = note.kind;
    kind.resize(16, ' ');
    out << kind << note.id << ' ' << note.version << '\n';
  }
  out << "written by      ddhost " << manifest.program_version << " on "
      << counted(static_cast<uint64_t>(manifest.world_size), "rank");
  for (const auto& [name, value] : manifest.host) out << ", " << name << " " << value;
  out << "\nseed            " << manifest.seed << '\n';
  for (const StoredLayout& layout : manifest.layouts)
    out << "layout          " << layout.name << (layout.refused.empty() ? "" : " (no export)") << '\n';
  for (size_t f = 0; f < manifest.files.size(); ++f) {
    out << manifest.files[f].name << "  " << mib_text(manifest.files[f].bytes) << '\n';
    for (const Manifest::Tensor& tensor : manifest.tensors) {
      const StoredTensor& t = tensor.stored;
      if (t.file != f) continue;
      out << "  " << t.name << "  " << safetensors_name(t.dtype) << " " << ddh::shape_text(t.shape) << '\n';
    }
  }
  return 0;
}

// "whole, 1.2 MiB read; 3 values of 'w' are not finite; ...". Returns false if no run can go on from the checkpoint.
bool describe(const VerifiedTensors& read, std::ostream& out) {
  out << "whole, " << mib_text(read.bytes) << " read";
  for (const VerifiedTensors::Nonfinite& one : read.nonfinite)
    out << "; " << counted(one.values, "value") << " of '" << one.tensor
        << (one.values == 1 ? "' is not finite" : "' are not finite");
  if (!read.unusable.empty()) out << "; no run can go on from it: " << read.unusable;
  out << '\n';
  return read.unusable.empty();
}

Json json_of(const VerifiedTensors& read) {
  Json nonfinite = Json::array();
  for (const VerifiedTensors::Nonfinite& one : read.nonfinite)
    nonfinite.push_back({{"tensor", one.tensor}, {"values", one.values}});
  return {{"is_whole", true}, {"bytes_read", read.bytes}, {"nonfinite", nonfinite}, {"unusable", read.unusable}};
}

// Reads every byte.
int verify(const fs::path& path, bool as_json, std::ostream& out) {
  const bool is_run = !list_checkpoints(run_folder_of(path)).empty();
  const std::vector<CheckpointPlace> places =
      is_run ? checkpoints_in(path) : std::vector<CheckpointPlace>{{0, one_of(path)}};
  int code = 0;
  Json all = Json::array();
  for (const CheckpointPlace& place : places) {
    Json one = {{"folder", place.folder.string()}};
    try {
      const VerifiedTensors read = verify_tensors(place.folder, open_checkpoint(place.folder));
      one.update(json_of(read));
      if (!as_json) out << place.folder.string() << ": ";
      if (as_json ? !read.unusable.empty() : !describe(read, out)) code = 1;
    } catch (const ddh::Error& error) {
      if ((error.code() == DDH_NOT_FOUND && !is_run) || !is_damage(error)) throw;
      one.update({{"is_whole", false}, {"damage", error.what()}});
      if (!as_json) out << place.folder.string() << ": damaged: " << error.what() << '\n';
      code = 1;
    }
    all.push_back(std::move(one));
  }
  return as_json ? print(all, out, code) : code;
}

Json json_of(const CheckpointDiff& diffs) {
  Json tensors = Json::array();
  for (const TensorDiff& d : diffs.tensors) {
    Json one = {{"name", d.name}};
    if (d.unlike.empty())
      one.update({{"elements", d.elements}, {"numel", d.numel}, {"largest", d.largest ? Json(*d.largest) : Json()}});
    else
      one["unlike"] = d.unlike;
    tensors.push_back(std::move(one));
  }
  return {{"tensors", diffs.names}, {"differing", tensors}};
}

// 0: the same bits, 1: they differ.
int diff(const fs::path& first_path, const fs::path& second_path, bool as_json, std::ostream& out) {
  const fs::path first_folder = one_of(first_path), second_folder = one_of(second_path);
  const Manifest first = open_checkpoint(first_folder), second = open_checkpoint(second_folder);
  const CheckpointDiff diffs = diff_tensors(first_folder, first, second_folder, second);
  const int code = diffs.tensors.empty() ? 0 : 1;
  if (as_json) {
    Json json = json_of(diffs);
    json["steps"] = {first.progress.step, second.progress.step};
    return print(json, out, code);
  }
  if (first.progress.step != second.progress.step)
    out << "step: " << first.progress.step << " and " << second.progress.step << '\n';
  for (const TensorDiff& d : diffs.tensors) {
    out << d.name << ": ";
    if (!d.unlike.empty()) {
      out << d.unlike << '\n';
      continue;
    }
    out << d.elements << " of " << d.numel << " elements differ";
    if (d.largest) out << ", by " << *d.largest << " at most";
    out << '\n';
  }
  out << diffs.tensors.size() << " of " << counted(diffs.names, "tensor") << " differ\n";
  return code;
}

// The innermost folder of a path that exists.
fs::path existing_part(const fs::path& path) {
  fs::path folder = fs::absolute(path);
  for (std::error_code ec; !fs::is_directory(folder, ec) && folder != folder.parent_path();)
    folder = folder.parent_path();
  return folder;
}

int import_from(const CkptArgs& args, const Registry& registry, std::ostream& out) {
  const fs::path& from = args.paths.front();
  const fs::path like = one_of(args.like);
  std::vector<std::string> notes;
  std::error_code ec;
  if (!fs::exists(from, ec))
    ddh::fail(DDH_NOT_FOUND, "there is no file or folder '", from.string(), "'; check the path");
  const auto call_limit = std::chrono::milliseconds(static_cast<int64_t>(args.watchdog_abort * 1000));
  const ConvertRequest request{
      args.format,
      existing_part(args.out),
      /*weights_only=*/false,
      {convert_memory(args.convert_memory, "--convert-memory"), "--convert-memory", call_limit, "--watchdog-abort"}};
  const std::optional<ConvertedFile> converted = convert_foreign(from, request, registry, notes);
  for (const std::string& note : notes) print_sentence(note);
  if (!converted)
    ddh::fail(DDH_NOT_FOUND, "'", from.string(),
              "' is no checkpoint that a format reads (there are: ", registry.names_of(DDH_KIND_FORMAT),
              "); give one of another program, or --format");
  const ImportedCheckpoint imported = import_checkpoint(from, *converted, like, args.out);
  for (const std::string& note : imported.notes) print_sentence(note);
  if (args.json) return print({{"folder", imported.folder.string()}}, out);
  out << imported.folder.string() << '\n';
  return 0;
}

int prune(const CkptArgs& args, std::ostream& out) {
  const fs::path run = run_folder_of(args.paths.front());
  const std::vector<CheckpointPlace> places = checkpoints_in(run);
  if (!args.keep_last && !args.after)
    ddh::fail(
        DDH_INVALID_ARGUMENT,
        "ckpt prune needs to know what to keep; give --keep-last N, --keep-last N --keep-every M, or --after STEP");
  RunLock lock;
  std::error_code ec;
  if (fs::exists(run / kRunLock, ec) && lock.take(run, RunLock::File::may_exist) == RunLock::Result::in_use)
    ddh::fail(DDH_FAILED_PRECONDITION, "'", run.string(),
              "' is in use by a run that has not ended, and that run removes ",
              "checkpoints itself (checkpoint.keep_last); wait until it ends");
  std::vector<int64_t> removed;
  if (args.after) removed = remove_checkpoints_after(run, *args.after);
  if (args.keep_last) {
    const std::vector<int64_t> more = prune_checkpoints(run, places.back().step, {*args.keep_last, args.keep_every});
    removed.insert(removed.end(), more.begin(), more.end());
  }
  if (args.json) return print({{"removed", removed}}, out);
  for (const int64_t step : removed) out << "removed step-" << step << '\n';
  return 0;
}

}  // namespace

int inspect_checkpoints(const CkptArgs& args, const Registry& registry, std::ostream& out) {
  switch (args.action) {
    case CkptAction::kList:
      return list(args.paths.front(), args.json, out);
    case CkptAction::kShow:
      return show(args.paths.front(), args.json, out);
    case CkptAction::kVerify:
      return verify(args.paths.front(), args.json, out);
    case CkptAction::kDiff:
      return diff(args.paths.at(0), args.paths.at(1), args.json, out);
    case CkptAction::kImport:
      return import_from(args, registry, out);
    case CkptAction::kPrune:
      break;
  }
  return prune(args, out);
}

}  // namespace ddhost
