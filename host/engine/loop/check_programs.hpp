// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/check_programs.hpp: what the programs of a model must satisfy beyond their shape: flags of positions, what a
// training program's steps can update, update programs, the optimizers that programs name, and the features that the
// model's plugin must declare for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddh/ddh.h"

namespace ddhost {

// Throws ddh::Error naming the program and what is wrong with it.
void check_positions(const ddh_model_desc& model, const ddh_program_desc& program);
void check_trained(const ddh_model_desc& model, const ddh_program_desc& program);
void check_update(const ddh_program_desc& program);

// `uses`: ddh_desc.uses of the model's plugin. Throws where the description has what it does not declare.
void check_features(const ddh_model_desc& model, uint64_t uses);

// `sections`: train.optimizers. Throws where a program of the run names one beyond them; gives those that none names.
std::vector<std::string> unused_optimizers(const ddh_model_desc& model, const std::vector<int32_t>& train_programs,
                                           const std::vector<std::string>& sections);

}  // namespace ddhost
