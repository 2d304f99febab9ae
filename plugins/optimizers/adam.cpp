// SPDX-License-Identifier: Apache-2.0
//
// adam: Adam (Kingma and Ba 2015) with weight decay as an L2 term of the gradient, as torch.optim.Adam does it. The
// update is in adam.hpp. DeepSpeed's "Adam" uses decoupled weight decay; use adamw for its configurations.
#include "adam.hpp"

namespace {

constexpr ddh::Option kOptions[] = {
    ddh::lr_option("1e-3"),
    adam::kBetasOption,
    adam::kEpsOption,
    adam::kBiasOption,
    {"weight_decay", "number", "0", ddh::kAtLeast0,
     "L2 weight decay: this times the parameter is added to the gradient"},
    ddh::kDecayGroupsOption,
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

using Adam = adam::Plugin<adam::Decay::l2>;

}  // namespace

DDH_CXX_PLUGIN(Adam, optimizer, "adam", "0.1.0", "Adam with L2 weight decay", ddh::kSchemaOf<kOptions>, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_CLIP_VALUE | kKernelCaps, .wants = kKernelWants);
