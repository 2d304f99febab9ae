// SPDX-License-Identifier: Apache-2.0
//
// The entry of the kgat plugin.
#include "../ops/services.hpp"
#include "kgat.hpp"

DDH_CXX_PLUGIN(kgat::Kgat, model, "kgat", "0.1.0", "knowledge graph attention network: recommends items to users",
               kgat::kSchema, kgat::kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_STREAM_ORDERED | DDH_CAP_COMPUTE_BF16 | DDH_CAP_COMPUTE_F16 |
                   DDH_CAP_RECOMPUTE | DDH_CAP_EMPTY_BATCH,
               DDH_FEATURE_UPDATES | DDH_FEATURE_OPTIMIZERS, 0, ddh::kTorchApis, ops::kWants);
