// SPDX-License-Identifier: Apache-2.0
//
// The entry of the cnn plugin.
#include "../ops/services.hpp"
#include "cnn.hpp"

DDH_CXX_PLUGIN(cnn::Cnn, model, "cnn", "0.1.0", "convolutional networks on MNIST, CIFAR-10 or folders of images",
               cnn::kSchema, cnn::kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_STREAM_ORDERED | DDH_CAP_COMPUTE_BF16 | DDH_CAP_COMPUTE_F16 |
                   DDH_CAP_RECOMPUTE | DDH_CAP_EMPTY_BATCH,
               DDH_FEATURE_POSITIONS, 0, ddh::kTorchApis, ops::kWants);
