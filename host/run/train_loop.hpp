// SPDX-License-Identifier: Apache-2.0
//
// run/train_loop.hpp: the loop over steps. It knows no scheme, no model and no optimizer.
#pragma once

#include <vector>

#include "data/sampler.hpp"
#include "monitor/monitor.hpp"
#include "run/engine.hpp"
#include "schedule/schedules.hpp"
#include "services/interfaces.hpp"

namespace ddhost {

// What the loop needs of a rank that is ready to train.
struct TrainSetup {
  RankServices& services;
  Engine& engine;
  Schedules& schedules;
  const ddh_model_desc& model;
  ddh_inst* model_inst;
  const ddh_model_api& model_table;
  BatchCallers model_callers;
  const RunPrograms& programs;
  std::vector<int32_t> train_programs;  // in turn, one a step
  int32_t eval_program;                 // of the first of them, which samples too; -1: none
  bool takes_empty_batches;
};

struct TrainEnd {
  int64_t last_step;
  bool stopped;  // the run was asked to; the same on every rank
};

// Whether a rank was asked to stop; the same on every rank. [collective]
bool stop_wanted(const TrainSetup& setup);

// data.drop_last.
EpochEnd epoch_end(const Config& config);

// Runs train.steps steps, fewer when the run is asked to stop.
TrainEnd train_loop(TrainSetup setup, Monitor& monitor);

}  // namespace ddhost
