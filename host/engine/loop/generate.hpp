// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/generate.hpp: generates text or other data from the trained model.
#pragma once

#include <string>

#include "engine/calls/instance.hpp"
#include "engine/loop/train_setup.hpp"

namespace ddhost {

// Checks before the training that the model can read the prompt and the condition. `program`: the eval program, or -1.
void check_generation(const RunConfig& config, const ddh_model_desc& desc, const Instance& model,
                      const ddh_sampler_api* sampler, int32_t program);

// The generated data, or "" if the model has no sampler. Every rank computes it. [collective]
std::string generate(TrainSetup& setup, const ddh_sampler_api* sampler, int64_t step);

}  // namespace ddhost
