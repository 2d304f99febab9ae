// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/train_setup.hpp: data shared by training steps, evaluations, update programs and generation.
#pragma once

#include <vector>

#include "engine/loop/op_runner.hpp"
#include "engine/loop/phases.hpp"
#include "engine/loop/run_programs.hpp"
#include "engine/services/interfaces.hpp"
#include "engine/weights/state_entries.hpp"

namespace ddhost {

// A rank that is ready to train.
struct TrainSetup {
  RankServices& services;
  OpRunner& runner;
  const ddh_model_desc& model;
  ddh_inst* model_inst;
  const ddh_model_api& model_table;
  BatchCallers model_callers;
  const RunPrograms& programs;
  StateSource state;
  const std::vector<PhaseSpec>& phases;
  std::vector<int32_t> train_programs;  // in turn, or those of all phases
  int32_t eval_program;                 // of the last phase's first program, which samples; -1: none
};

// Whether a rank was asked to stop; the same on every rank. [collective]
bool stop_wanted(const TrainSetup& setup);

}  // namespace ddhost
