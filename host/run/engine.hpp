// SPDX-License-Identifier: Apache-2.0
//
// run/engine.hpp: the calls between strategy and model for one op: acquire, compute, grads_ready, release.
#pragma once

#include "data/loader.hpp"
#include "ddh/ddh.h"
#include "run/op_list.hpp"
#include "services/clock.hpp"

namespace ddhost {

class Engine {
 public:
  Engine(ddh_inst* strategy, const ddh_strategy& strategy_table, ddh_inst* model, const ddh_model& model_table,
         Clock& clock)
      : strategy_(strategy), s_(strategy_table), model_(model), m_(model_table), clock_(clock) {}

  void step_begin(int32_t program, int64_t step);
  // All ops of one micro-batch.
  void run(const OpList& list, int32_t program, int64_t step, uint64_t micro_batch, const Batch& batch,
           double seed_scale) {
    run(list, program, step, micro_batch, batch.get(), seed_scale);
  }
  void run(const OpList& list, int32_t program, int64_t step, uint64_t micro_batch, ddh_batch* batch,
           double seed_scale);
  // Sums and counts of a micro-batch, added to the given arrays of n_metrics.
  void add_metrics(int32_t program, uint64_t micro_batch, uint32_t n_metrics, double* sums, double* counts);
  void discard(uint64_t micro_batch) { m_.discard(model_, static_cast<int32_t>(micro_batch)); }
  void step();

 private:
  ddh_inst* strategy_;
  const ddh_strategy& s_;
  ddh_inst* model_;
  const ddh_model& m_;
  Clock& clock_;
};

}  // namespace ddhost
