// SPDX-License-Identifier: Apache-2.0
//
// run/evaluate.hpp: the eval program: mean loss over held-out samples, and text from the model.
#pragma once

#include <string>

#include "data/sampler.hpp"
#include "plugin/instance.hpp"
#include "run/run_programs.hpp"
#include "run/train_loop.hpp"

namespace ddhost {

// The eval program over train.eval_batches micro-batches per rank, always the same samples.
class Evaluation {
 public:
  // Throws where the model or its data can't be evaluated: before the first step, not after hours.
  explicit Evaluation(const TrainSetup& setup);
  // Mean of metric 0, equal on every rank. [collective]
  [[nodiscard]] double mean_loss(int64_t step) const;

 private:
  TrainSetup setup_;
  uint64_t batches_;
  Sampler sampler_;
};

// Refuses a prompt that the model can't read, before the training.
void check_sample_prompt(const Config& config, const Instance& model, const ddh_sampler_api* sampler, int32_t program);

// Text that the model makes, or "" when it has no sampler. Every rank computes it. [collective]
std::string sample_text(TrainSetup& setup, const ddh_sampler_api* sampler, int64_t step);

}  // namespace ddhost
