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

// Every rank writes what it owns (replica 0) at its final place, and rank 0 its buffers; the file gets its name when it is
// whole. Parameters are stored in the dtype that the model says (ddh_param_desc.dtype). Every rank throws ddh::Error when
// one of them fails, and the half-written file is removed. Values that are not finite are such a failure, for which
// `nonfinite_reason` says who made them so. Gives this rank's warnings: what the stored dtype can't hold. [collective]
[[nodiscard]] std::vector<std::string> export_params(const std::string& path, const StateSource& source,
                                                     const Comm& comm, Staging& staging,
                                                     const std::string& nonfinite_reason);

}  // namespace ddhost
