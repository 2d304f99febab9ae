// SPDX-License-Identifier: Apache-2.0
//
// engine/checks/check_programs.hpp: checks the programs of a model: flags of positions, trained parameters, update
// programs, the optimizers that programs name, and the features that the model's plugin must declare.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddh/ddh.h"
#include "ddh/kind/model.h"
#include "engine/services/comm/comm.hpp"
#include "engine/settings/run_plan.hpp"

namespace ddhost {

// Throws on every rank if one differs from rank 0, and names that rank and the difference. [collective]
void check_same_everywhere(const std::vector<Fingerprint>& fingerprints, const Comm& comm);

// The numbers of samples of the model's programs and the meaning of its ids, to compare them in the same way.
std::vector<Fingerprint> data_fingerprints(const ddh_model_desc& model);

// Throws ddh::Error naming the program and the error.
void check_positions(const ddh_model_desc& model, const ddh_program_desc& program);
void check_trained(const ddh_model_desc& model, const ddh_program_desc& program);
void check_update(const ddh_program_desc& program);

// `uses`: ddh_desc.uses of the model's plugin. Throws if the description uses an undeclared feature.
void check_features(const ddh_model_desc& model, uint64_t uses);

// `sections`: train.optimizers. Throws if a program's optimizer index is beyond them. Returns sections that no program
// uses.
std::vector<std::string> unused_optimizers(const ddh_model_desc& model, const std::vector<int32_t>& train_programs,
                                           const std::vector<std::string>& sections);

}  // namespace ddhost
