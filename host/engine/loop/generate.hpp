// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/generate.hpp: generates text or other data from the trained model.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "engine/calls/instance.hpp"
#include "engine/loop/train_setup.hpp"

namespace ddhost {

// Checks before the training that the model can read the prompt and the condition. `program`: the eval program, or -1.
void check_generation(const RunConfig& config, const ddh_model_desc& desc, const Instance& model,
                      const ddh_sampler_api* sampler, int32_t program);

// Throws if nothing can be generated: no sampler, no program that it runs on (-1), no length.
void require_sampler(const RunConfig& config, const ddh_model_desc& desc, const ddh_sampler_api* sampler,
                     int32_t program);

// Whether there are a sampler, a program that it runs on (not -1) and a length.
bool can_generate(const RunConfig& config, const ddh_sampler_api* sampler, int32_t program);

// The generated data. Called only if can_generate. `number`: of several samples, from 0; each has its own seed.
// `show` gets the text piece by piece, as the model generates it. Every rank computes it. [collective]
using ShowText = std::function<void(std::string_view)>;
std::string generate(TrainSetup& setup, const ddh_sampler_api* sampler, int64_t step, uint64_t number = 0,
                     const ShowText& show = {});

}  // namespace ddhost
