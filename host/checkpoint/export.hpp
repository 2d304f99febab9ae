// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/export.hpp: the model's parameters and buffers as one safetensors file, written by all ranks at once.
#pragma once

#include <string>
#include <vector>

#include "ddh/ddh.h"
#include "services/comm.hpp"
#include "services/staging.hpp"

namespace ddhost {

// Every rank writes what it owns (replica 0) at its final place, and rank 0 its buffers; the file gets its name when it is
// whole. Parameters are stored in the dtype that the model says (ddh_param_desc.dtype). Every rank throws ddh::Error when
// one of them fails, and the half-written file is removed. [collective] Gives this rank's warnings: what the stored dtype can't hold.
[[nodiscard]] std::vector<std::string> export_params(const std::string& path, const ddh_model_desc& model,
                                                     ddh_inst* strategy, const ddh_strategy_api& strategy_table,
                                                     const Comm& comm, Staging& staging);

}  // namespace ddhost
