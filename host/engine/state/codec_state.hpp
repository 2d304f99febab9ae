// SPDX-License-Identifier: Apache-2.0
//
// engine/state/codec_state.hpp: saves and loads the state of the run's codec beside the tensors of a checkpoint. Arrays that
// are equal on all ranks are saved once, and those that differ once for each rank.
#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/codec_file.hpp"
#include "engine/services/comm/comm.hpp"
#include "engine/services/run_codec.hpp"

namespace ddhost {

// Of this rank's part, without headers of files.
uint64_t codec_bytes(const RunCodec& codec, int rank);

// Writes this rank's part into the folder of a checkpoint.
void save_codec_state(const RunCodec& codec, const std::filesystem::path& folder, int rank);

struct CodecLoad {
  std::string damage;  // that of the first rank that found some, or ""
  std::string notice;  // what begins anew, as a sentence, or ""
};
// `codec`: null for a run without one; `id`: its name. [collective]
CodecLoad load_codec_state(const RunCodec* codec, const std::string& id, const std::filesystem::path& folder,
                           const Manifest& manifest, const Comm& comm);

}  // namespace ddhost
