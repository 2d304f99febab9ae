// SPDX-License-Identifier: Apache-2.0
#include "engine/state/codec_state.hpp"

#include <algorithm>

#include "engine/services/comm/together.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

std::vector<CodecArray> arrays_of(const RunCodec& codec, int32_t scope) {
  std::vector<CodecArray> out;
  for (const ddh_codec_state& s : codec.state())
    if (s.scope == scope)
      out.push_back({s.param < 0 ? std::string(s.name) : ddh::str(s.name, '/', codec.model().params[s.param]->name),
                     s.data, s.numel});
  return out;
}

// "'error', 'sum'"
std::string names_of(const RunCodec& codec, int32_t scope) {
  std::vector<std::string> names;
  for (const ddh_codec_state& s : codec.state())
    if (s.scope == scope && std::find(names.begin(), names.end(), s.name) == names.end()) names.emplace_back(s.name);
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return text;
}

}  // namespace

uint64_t codec_bytes(const RunCodec& codec, int rank) {
  uint64_t bytes = 0;
  for (const ddh_codec_state& s : codec.state())
    if (s.scope == DDH_SCOPE_RANK || rank == 0) bytes += s.numel * sizeof(float);
  return bytes;
}

void save_codec_state(const RunCodec& codec, const fs::path& folder, int rank) {
  if (rank == 0) write_codec_file(folder / kSharedCodecFile, arrays_of(codec, DDH_SCOPE_SHARED));
  write_codec_file(folder / codec_file_of_rank(rank), arrays_of(codec, DDH_SCOPE_RANK));
}

CodecLoad load_codec_state(const RunCodec* codec, const std::string& id, const fs::path& folder,
                           const Manifest& manifest, const Comm& comm) {
  const std::string saved = codec_of(manifest);
  CodecLoad out;
  if (codec == nullptr) {
    if (!saved.empty())
      out.notice = ddh::str("the checkpoint has the state of codec '", saved, "', which this run does not use");
    return out;
  }
  if (saved != id) {
    out.notice = ddh::str("the checkpoint has no state of codec '", id, "', so it begins with zeros");
    return out;
  }
  const bool same_world = manifest.world_size == comm.world_size();
  out.damage = first_damage(comm, "checkpoint: codec", [&] {
    read_codec_file(folder / kSharedCodecFile, arrays_of(*codec, DDH_SCOPE_SHARED));
    if (same_world) read_codec_file(folder / codec_file_of_rank(comm.rank()), arrays_of(*codec, DDH_SCOPE_RANK));
  });
  if (const std::string own = names_of(*codec, DDH_SCOPE_RANK); !same_world && !own.empty())
    out.notice =
        ddh::str("the checkpoint was saved with ", manifest.world_size, " ranks, and this run has ", comm.world_size(),
                 ": state of codec '", id, "' that differs between ranks (", own, ") begins with zeros");
  return out;
}

}  // namespace ddhost
