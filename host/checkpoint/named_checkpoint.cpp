// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/named_checkpoint.hpp"

#include <algorithm>

#include "base/durable.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "ddh/sdk/plugin.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

// The folder beside a file `latest` that its text names; DeepSpeed writes such a file too. Else the path itself.
fs::path named_by_latest(const fs::path& path) {
  std::error_code ec;
  constexpr uintmax_t kMostBytes = 4096;
  if (path.filename() != "latest" || !fs::is_regular_file(path, ec) || fs::file_size(path, ec) > kMostBytes)
    return path;
  std::string name = read_whole(path);
  name.erase(name.find_last_not_of(" \n\r\t") + 1);
  if (name.empty() || fs::path(name).filename() != name)
    ddh::fail(DDH_DATA_LOSS, "'", path.string(), "' names no folder beside it; name a checkpoint");
  return path.parent_path() / name;
}

}  // namespace

NamedCheckpoint named_checkpoint(const fs::path& path) {
  NamedCheckpoint out{named_by_latest(path), {}};
  std::error_code ec;
  if (path.empty() || fs::exists(out.folder / "manifest.json", ec)) return out;
  const std::vector<CheckpointPlace> places = list_checkpoints(run_folder_of(out.folder));
  const auto is_ours = [&](const CheckpointPlace& place) { return fs::exists(place.folder / "manifest.json", ec); };
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
