// SPDX-License-Identifier: Apache-2.0
//
// adamw: Adam with decoupled weight decay (Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization"), as
// torch.optim.AdamW does it. The update is in adam.hpp.
#include "adam.hpp"

namespace {

constexpr ddh::Option kOptions[] = {
    ddh::lr_option("3e-4"),
    adam::kBetasOption,
    adam::kEpsOption,
    adam::kBiasOption,
    {"weight_decay", "number", "0.01", ddh::kAtLeast0,
     "decoupled weight decay: each step multiplies the parameter by 1 - lr * weight_decay"},
    ddh::kDecayGroupsOption,
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

using AdamW = adam::Plugin<adam::Decay::decoupled>;

}  // namespace

DDH_CXX_PLUGIN(AdamW, optimizer, "adamw", "0.1.0", "Adam with decoupled weight decay", ddh::kSchemaOf<kOptions>, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_CLIP_VALUE | kKernelCaps, .wants = kKernelWants);
