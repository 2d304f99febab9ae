// SPDX-License-Identifier: Apache-2.0
//
// The entry of the vit plugin.
#include "../ops/services.hpp"
#include "vit.hpp"

DDH_CXX_PLUGIN(vit::Vit, model, "vit", "0.1.0", "Vision Transformer on MNIST, CIFAR-10 or folders of images",
               vit::kSchema, vit::kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_STREAM_ORDERED | DDH_CAP_COMPUTE_BF16 | DDH_CAP_COMPUTE_F16 |
                   DDH_CAP_RECOMPUTE | DDH_CAP_EMPTY_BATCH,
               0, 0, ddh::kTorchApis, ops::kWants);
