// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/generate.hpp: text, or what the model makes, from the trained model.
#pragma once

#include <string>

#include "engine/calls/instance.hpp"
#include "engine/loop/train_setup.hpp"

namespace ddhost {

// Refuses a prompt, or a condition, that the model can't read, before the training. `program`: the eval program, or -1.
void check_generation(const RunConfig& config, const ddh_model_desc& desc, const Instance& model,
                      const ddh_sampler_api* sampler, int32_t program);

// What the model makes, or "" when it has no sampler. Every rank computes it. [collective]
std::string generate(TrainSetup& setup, const ddh_sampler_api* sampler, int64_t step);

}  // namespace ddhost
