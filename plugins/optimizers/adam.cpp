// SPDX-License-Identifier: Apache-2.0
//
// adam: Adam (Kingma and Ba 2015) with weight decay as an L2 term of the gradient, as torch.optim.Adam does it. The
// update is in adam.hpp. DeepSpeed's "Adam" decays as adamw does; take adamw for its configurations.
#include "adam.hpp"

namespace {

constexpr const char* kSchema = R"({
  "type": "object",
  "properties": {
    "lr": {"type": "number", "minimum": 0, "default": 1e-3,
           "description": "learning rate; the schedule multiplies it"},
    "betas": {"type": "array", "items": {"type": "number", "minimum": 0}, "minItems": 2,
              "maxItems": 2, "default": [0.9, 0.999], "description": "decay of the first and second moment"},
    "eps": {"type": "number", "minimum": 0, "default": 1e-8, "description": "added to the denominator"},
    "weight_decay": {"type": "number", "minimum": 0, "default": 0, "description": "L2: added to the gradient"},
    "decay_groups": {"type": "boolean", "default": true,
                     "description": "true: parameters that the model marks as no_decay get none; false: all decay"}
  }
})";
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

using Adam = adam::Plugin<adam::Decay::l2>;

}  // namespace

DDH_CXX_PLUGIN(Adam, optimizer, "adam", "0.1.0", "Adam with L2 weight decay", kSchema, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_CLIP_VALUE);
