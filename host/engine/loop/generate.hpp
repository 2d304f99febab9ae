// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/generate.hpp: text, or what the model makes, from the trained model.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "engine/calls/instance.hpp"
#include "engine/loop/train_setup.hpp"

namespace ddhost {

// Refuses a prompt, or a condition, that the model can't read, before the training. `program`: the eval program, or -1.
void check_generation(const RunConfig& config, const ddh_model_desc& desc, const Instance& model,
                      const ddh_sampler_api* sampler, int32_t program);

// Throws where there is nothing to generate: no sampler, no program that it runs on (-1), no length.
void require_sampler(const RunConfig& config, const ddh_model_desc& desc, const ddh_sampler_api* sampler,
                     int32_t program);

// What the model makes, or "" when it has no sampler. `number`: of several samples, from 0; each has a seed of its own.
// `show` gets the text piece by piece, as the model makes it. Every rank computes it. [collective]
using ShowText = std::function<void(std::string_view)>;
std::string generate(TrainSetup& setup, const ddh_sampler_api* sampler, int64_t step, uint64_t number = 0,
                     const ShowText& show = {});

}  // namespace ddhost
