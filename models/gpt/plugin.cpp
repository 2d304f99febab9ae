// SPDX-License-Identifier: Apache-2.0
//
// The entry of the gpt plugin.
#include "../ops/services.hpp"
#include "gpt.hpp"

DDH_CXX_PLUGIN(gpt::Gpt, model, "gpt", "0.1.0", "GPT-2 and nanoGPT's variants on text or token files", gpt::kSchema,
               gpt::kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_STREAM_ORDERED | DDH_CAP_COMPUTE_BF16 | DDH_CAP_COMPUTE_F16 |
                   DDH_CAP_RECOMPUTE | DDH_CAP_EMPTY_BATCH,
               0, 0, ddh::kTorchApis, ops::kWants);
