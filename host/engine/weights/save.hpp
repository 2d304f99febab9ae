// SPDX-License-Identifier: Apache-2.0
//
// engine/weights/save.hpp: the model's parameters and buffers as one safetensors file, written by all ranks at once.
#pragma once

#include <string>
#include <vector>

#include "engine/services/comm.hpp"
#include "engine/services/staging.hpp"
#include "engine/weights/durable.hpp"
#include "engine/weights/state_entries.hpp"

namespace ddhost {

// The size of the file.
uint64_t weights_file_bytes(const ddh_model_desc& model);

struct Exported {
  std::string disk_failure;           // the disk refused the file, which is incomplete; the same on every rank
  std::vector<std::string> warnings;  // of this rank, about values that the stored dtype can't represent
};

// Every rank writes the entries that it owns (replica 0), and rank 0 writes its buffers. All write through the same file.
// Parameters are stored in ddh_param_desc.dtype. If one rank fails, every rank throws ddh::Error. Values that are not
// finite are such a failure; `nonfinite_reason` explains their cause. [collective]
[[nodiscard]] Exported export_params(const RangeFile& file, const StateSource& source, const Comm& comm,
                                     Staging& staging, const std::string& nonfinite_reason);

}  // namespace ddhost
