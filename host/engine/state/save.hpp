// SPDX-License-Identifier: Apache-2.0
//
// engine/state/save.hpp: the model's parameters and buffers as one safetensors file, written by all ranks at once.
#pragma once

#include <string>
#include <vector>

#include "base/durable.hpp"
#include "engine/services/comm/comm.hpp"
#include "engine/services/memory/staging.hpp"
#include "engine/services/tables/interfaces.hpp"
#include "engine/state/final_weights.hpp"
#include "engine/state/state_entries.hpp"

namespace ddhost {

// Reserves the space of the file before the training, so that a full disk is an error at once. [collective]
void reserve_final_weights(const FinalWeights& file, const ddh_model_desc& model, const Comm& comm);

struct FinalSave {
  std::string path;     // where the weights are; known on rank 0
  std::string problem;  // why they are not in train.save_final; empty: they are. The same on every rank
};

// Writes and names the file. If its disk fails, the run's folder gets the weights. `nonfinite_reason` is as for
// export_params. [collective]
[[nodiscard]] FinalSave save_final_weights(const FinalWeights& file, const StateSource& source,
                                           const RankServices& services, const std::string& nonfinite_reason);

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
