// SPDX-License-Identifier: Apache-2.0
//
// adamw: Adam with decoupled weight decay (Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization"), as
// torch.optim.AdamW does it. The update is in adam.hpp.
#include "adam.hpp"

namespace {

constexpr const char* kSchema = R"({
  "type": "object",
  "properties": {
    "lr": {"type": "number", "minimum": 0, "default": 3e-4,
           "description": "learning rate; the schedule multiplies it"},
    "betas": {"type": "array", "items": {"type": "number", "minimum": 0}, "minItems": 2,
              "maxItems": 2, "default": [0.9, 0.999], "description": "decay of the first and second moment"},
    "eps": {"type": "number", "minimum": 0, "default": 1e-8, "description": "added to the denominator"},
    "weight_decay": {"type": "number", "minimum": 0, "default": 0.01, "description": "decoupled weight decay"},
    "decay_groups": {"type": "boolean", "default": true,
                     "description": "true: parameters that the model marks as no_decay get none; false: all decay"}
  }
})";
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

using AdamW = adam::Plugin<adam::Decay::decoupled>;

}  // namespace

DDH_CXX_PLUGIN(AdamW, optimizer, "adamw", "0.1.0", "Adam with decoupled weight decay", kSchema, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_CLIP_VALUE);
