// SPDX-License-Identifier: Apache-2.0
//
// engine/weights/checkpoint_write.hpp: a checkpoint, written by all ranks at once: each its own ranges, at their final places.
#pragma once

#include <filesystem>

#include "engine/services/comm.hpp"
#include "engine/services/staging.hpp"
#include "engine/weights/manifest.hpp"
#include "engine/weights/state_entries.hpp"

namespace ddhost {

// Writes and commits <run_dir>/checkpoints/step-N for the step of `manifest`, whose files and tensors are filled in here.
// Every rank throws ddh::Error when one of them fails, and nothing is left. [collective]
void write_checkpoint(const std::filesystem::path& run_dir, Manifest manifest, const StateSource& source,
                      const CheckpointLayout& layout, const Comm& comm, Staging& staging);

}  // namespace ddhost
