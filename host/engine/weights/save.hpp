// SPDX-License-Identifier: Apache-2.0
//
// engine/weights/save.hpp: the model's parameters and buffers as one safetensors file, written by all ranks at once.
#pragma once

#include <string>
#include <vector>

#include "engine/services/comm.hpp"
#include "engine/services/staging.hpp"
#include "engine/weights/state_entries.hpp"

namespace ddhost {

// Every rank writes the entries that it owns (replica 0), and rank 0 writes its buffers. The file is renamed to its
// final name when it is complete. Parameters are stored in ddh_param_desc.dtype. If one rank fails, every rank throws
// ddh::Error and the incomplete file is removed. Values that are not finite are such a failure; `nonfinite_reason`
// explains their cause. Returns this rank's warnings about values that the stored dtype can't represent. [collective]
[[nodiscard]] std::vector<std::string> export_params(const std::string& path, const StateSource& source,
                                                     const Comm& comm, Staging& staging,
                                                     const std::string& nonfinite_reason);

}  // namespace ddhost
