// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint_folder.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/durable.hpp"
#include "checkpoint/chunk_reader.hpp"
#include "checkpoint/codec_file.hpp"
#include "checkpoint/usable_values.hpp"
#include "ddh/sdk/plugin.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr const char* kManifest = "manifest.json";
constexpr const char* kMarker = "COMPLETE";
constexpr const char* kBest = "best";
constexpr const char* kLatest = "latest";
constexpr std::string_view kPrefix = "step-";

std::string marker_text(const std::string& manifest) {
  return ddh::str("ddhost checkpoint ", kCheckpointVersion, "\nmanifest ", manifest.size(), " ",
                  hex(sum_of(manifest.data(), manifest.size())), "\n");
}

std::optional<int64_t> step_of(const std::string& name) {
  int64_t step = 0;
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const char* const end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  return error == std::errc{} && at == end && step >= 0 ? std::optional(step) : std::nullopt;
}

void check_file(const fs::path& folder, const Manifest::File& file) {
  const fs::path path = folder / file.name;
  const RangeFile in(path, RangeFile::Mode::read);
  if (in.bytes() != file.bytes)
    ddh::fail(DDH_DATA_LOSS, "'", path.string(), "' has ", in.bytes(), " bytes instead of ", file.bytes);
  if (file.header_bytes > file.bytes)
    ddh::fail(DDH_DATA_LOSS, "the manifest contradicts itself about '", file.name, "'");
  std::string header(file.header_bytes, '\0');
  in.read_at(0, header.data(), header.size());
  if (sum_of(header.data(), header.size()) != file.header_sum)
    ddh::fail(DDH_DATA_LOSS, "the header of '", path.string(), "' is damaged");
}

[[noreturn]] void fail_access(const fs::path& folder, const std::error_code& why) {
  ddh::fail(DDH_PERMISSION_DENIED, "'", folder.string(), "' can't be read: ", why.message(),
            "; give this user the right to read it");
}

// The folder beside a file `latest` that its text names; DeepSpeed writes such a file too. Else the path itself.
fs::path named_by_latest(const fs::path& path) {
  std::error_code ec;
  constexpr uintmax_t kMostBytes = 4096;
  if (path.filename() != kLatest || !fs::is_regular_file(path, ec) || fs::file_size(path, ec) > kMostBytes) return path;
  std::string name = read_whole(path);
  name.erase(name.find_last_not_of(" \n\r\t") + 1);
  if (name.empty() || fs::path(name).filename() != name)
    ddh::fail(DDH_DATA_LOSS, "'", path.string(), "' names no folder beside it; name a checkpoint");
  return path.parent_path() / name;
}

}  // namespace

fs::path checkpoints_folder(const fs::path& run_dir) { return run_dir / "checkpoints"; }
fs::path run_folder_of(const fs::path& path) {
  const fs::path folder = path.has_filename() ? path : path.parent_path();
  return folder.filename() == "checkpoints" ? folder.parent_path() : folder;
}
fs::path checkpoint_folder(const fs::path& run_dir, int64_t step) {
  return checkpoints_folder(run_dir) / ddh::str(kPrefix, step);
}

fs::path partial_folder(const fs::path& run_dir, int64_t step) {
  return checkpoints_folder(run_dir) / ddh::str(".step-", step, ".partial");
}

std::optional<int64_t> step_of_checkpoint(const fs::path& folder) { return step_of(folder.filename().string()); }

std::vector<CheckpointPlace> list_checkpoints(const fs::path& run_dir) {
  std::vector<CheckpointPlace> out;
  std::error_code ec;
  for (fs::directory_iterator at(checkpoints_folder(run_dir), ec), end; !ec && at != end; at.increment(ec)) {
    const std::optional<int64_t> step = step_of(at->path().filename().string());
    if (step) out.push_back({*step, at->path()});
  }
  if (ec && ec != std::errc::no_such_file_or_directory && ec != std::errc::not_a_directory)
    fail_access(checkpoints_folder(run_dir), ec);
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return out;
}

bool is_damage(const ddh::Error& error) {
  return error.code() != DDH_PERMISSION_DENIED && error.code() != DDH_RESOURCE_EXHAUSTED;
}

Manifest open_checkpoint(const fs::path& folder) {
  const fs::path marker = folder / kMarker, manifest_path = folder / kManifest;
  std::error_code ec;
  if (!fs::is_directory(folder, ec)) ddh::fail(DDH_NOT_FOUND, "there is no checkpoint '", folder.string(), "'");
  const bool has_marker = fs::exists(marker, ec);
  if (ec) fail_access(folder, ec);
  if (!has_marker)
    ddh::fail(DDH_DATA_LOSS, "'", folder.string(), "' has no file ", kMarker,
              ": it is not a checkpoint, or saving it was not finished");
  const std::string given = read_whole(marker), text = read_whole(manifest_path);
  if (given != marker_text(text)) {
    // A newer format is not reported as damage.
    if (given.starts_with("ddhost checkpoint ") &&
        !given.starts_with(ddh::str("ddhost checkpoint ", kCheckpointVersion, "\n")))
      static_cast<void>(parse_manifest(text, manifest_path.string()));
    ddh::fail(DDH_DATA_LOSS, "'", marker.string(), "' and '", manifest_path.string(),
              "' do not fit together: one of them is damaged");
  }
  Manifest manifest = parse_manifest(text, manifest_path.string());
  for (const Manifest::File& file : manifest.files) check_file(folder, file);
  return manifest;
}

VerifiedTensors verify_tensors(const fs::path& folder, const Manifest& manifest) {
  ChunkReader reader(folder, manifest);
  VerifiedTensors out;
  for (const Manifest::Tensor& tensor : manifest.tensors) {
    const StoredTensor& t = tensor.stored;
    uint64_t nonfinite = 0;
    reader.for_each_chunk(tensor, [&](uint64_t begin, const char* values, uint64_t bytes) {
      nonfinite += count_nonfinite(t.dtype, values, bytes);
      if (!out.unusable.empty() || nonfinite == 0) return;
      if (const std::optional<uint64_t> at = first_unusable(t, values, bytes))
        out.unusable = unusable_text(t, begin / ddh_dtype_bytes(t.dtype) + *at);
    });
    if (nonfinite > 0) out.nonfinite.push_back({t.name, nonfinite});
  }
  out.bytes = reader.bytes_read();
  verify_codec_files(folder, manifest);
  return out;
}

void remove_leftovers(const fs::path& run_dir) {
  std::error_code ec;
  for (fs::directory_iterator at(checkpoints_folder(run_dir), ec), end; !ec && at != end; at.increment(ec)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(".step-") || (name.starts_with('.') && name.ends_with(".part")))
      fs::remove_all(at->path(), ec);
  }
}

void remove_damaged(const fs::path& run_dir) {
  std::error_code ec;
  std::vector<fs::path> damaged;
  for (fs::directory_iterator at(checkpoints_folder(run_dir), ec), end; !ec && at != end; at.increment(ec))
    if (at->path().filename().string().starts_with("damaged-")) damaged.push_back(at->path());
  for (const fs::path& one : damaged) fs::remove_all(one, ec);
}

void note_newest(const fs::path& run_dir) {
  const fs::path latest = checkpoints_folder(run_dir) / kLatest;
  const std::vector<CheckpointPlace> all = list_checkpoints(run_dir);
  if (all.empty()) return;
  const std::string name = all.front().folder.filename().string() + "\n";
  std::error_code ec;
  if (!fs::exists(latest, ec) || read_whole(latest) != name) replace_durably(latest, name);
}

fs::path begin_checkpoint(const fs::path& run_dir, int64_t step) {
  fs::path partial = partial_folder(run_dir, step);
  fs::create_directories(checkpoints_folder(run_dir));
  remove_leftovers(run_dir);
  fs::create_directory(partial);
  return partial;
}

void complete_checkpoint(const fs::path& folder, const Manifest& manifest) {
  const std::string text = manifest_text(manifest);
  fs::remove(folder / kMarker);
  replace_durably(folder / kManifest, text);
  replace_durably(folder / kMarker, marker_text(text));
}

void commit_checkpoint(const fs::path& run_dir, const Manifest& manifest) {
  const int64_t step = manifest.progress.step;
  const fs::path partial = partial_folder(run_dir, step), folder = checkpoint_folder(run_dir, step);
  const std::string text = manifest_text(manifest);
  write_durably(partial / kManifest, text);
  write_durably(partial / kMarker, marker_text(text));
  sync_folder(partial);
  publish_folder(partial, folder);
  replace_durably(checkpoints_folder(run_dir) / kLatest, folder.filename().string() + "\n");
  if (manifest.progress.best.best.value && manifest.progress.best.best.step == step) mark_best(run_dir, step);
}

void mark_best(const fs::path& run_dir, int64_t step) {
  replace_link(checkpoints_folder(run_dir) / kBest, checkpoint_folder(run_dir, step).filename());
}

std::optional<int64_t> best_step(const fs::path& run_dir) {
  std::error_code ec;
  const fs::path target = fs::read_symlink(checkpoints_folder(run_dir) / kBest, ec);
  return ec ? std::nullopt : step_of(target.string());
}

void drop_checkpoint(const fs::path& run_dir, int64_t step) noexcept {
  std::error_code ignored;
  fs::remove_all(partial_folder(run_dir, step), ignored);
}

std::vector<int64_t> prune_checkpoints(const fs::path& run_dir, int64_t newest, const KeepRule& keep) {
  std::vector<int64_t> removed;
  if (keep.last == 0) return removed;
  const std::optional<int64_t> best = best_step(run_dir);
  int64_t seen = 0;
  for (const CheckpointPlace& place : list_checkpoints(run_dir)) {
    std::error_code ec;
    if (place.step > newest || !fs::exists(place.folder / kMarker, ec)) continue;
    if (++seen <= keep.last || place.step == best || (keep.every > 0 && place.step % keep.every == 0)) continue;
    remove_folder(place.folder);
    removed.push_back(place.step);
  }
  return removed;
}

std::vector<int64_t> remove_checkpoints_after(const fs::path& run_dir, int64_t step) {
  std::vector<int64_t> removed;
  std::error_code ec;
  if (best_step(run_dir).value_or(step) > step) fs::remove(checkpoints_folder(run_dir) / kBest, ec);
  for (const CheckpointPlace& place : list_checkpoints(run_dir)) {
    if (place.step <= step) continue;
    remove_folder(place.folder);
    removed.push_back(place.step);
  }
  if (!removed.empty()) note_newest(run_dir);
  return removed;
}

NamedCheckpoint named_checkpoint(const fs::path& path) {
  NamedCheckpoint out{named_by_latest(path), {}};
  std::error_code ec;
  if (path.empty() || fs::exists(out.folder / kManifest, ec)) return out;
  const std::vector<CheckpointPlace> places = list_checkpoints(run_folder_of(out.folder));
  const auto is_ours = [&](const CheckpointPlace& place) { return fs::exists(place.folder / kManifest, ec); };
  if (std::none_of(places.begin(), places.end(), is_ours)) return out;
  std::string damages;
  for (const CheckpointPlace& place : places) {
    try {
      static_cast<void>(open_checkpoint(place.folder));
    } catch (const ddh::Error& damage) {
      if (!is_damage(damage)) throw;
      damages += (damages.empty() ? "" : "; ") + std::string(damage.what());
      out.notes.push_back(ddh::str("warning: ", damage.what(), "; an older checkpoint is used"));
      continue;
    }
    out.notes.push_back(ddh::str("'", path.string(), "' is the folder of a run: its newest complete checkpoint, ",
                                 place.folder.filename().string(), ", is used"));
    out.folder = place.folder;
    return out;
  }
  ddh::fail(DDH_DATA_LOSS, "all checkpoints in '", path.string(), "' are damaged: ", damages,
            "; `ddhost ckpt verify` shows more");
}

bool is_safetensors_name(const fs::path& path) {
  return path.extension() == ".safetensors" || path.filename().string().ends_with(".safetensors.index.json");
}

NamedCheckpoint named_weights(const fs::path& path) {
  std::error_code ec;
  for (fs::directory_iterator at(path, ec), end; !ec && at != end; at.increment(ec))
    if (is_safetensors_name(at->path())) return {path, {}};
  return named_checkpoint(path);
}

}  // namespace ddhost
