// SPDX-License-Identifier: Apache-2.0
//
// The entry of the cad_mllm plugin.
#include "../ops/services.hpp"
#include "cad_mllm.hpp"

DDH_CXX_PLUGIN(cad::CadMllm, model, "cad_mllm", "0.1.0", "CAD sequences from text, images and point clouds",
               cad::kSchema, cad::kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_STREAM_ORDERED | DDH_CAP_COMPUTE_BF16 | DDH_CAP_COMPUTE_F16 |
                   DDH_CAP_RECOMPUTE | DDH_CAP_EMPTY_BATCH,
               DDH_FEATURE_POSITIONS, 0, ddh::kTorchApis, ops::kWants);
