// SPDX-License-Identifier: Apache-2.0
//
// run/evaluate.hpp: the eval program: mean loss over held-out samples, and text from the model.
#pragma once

#include <string>

#include "run/train_loop.hpp"

namespace ddhost {

// Mean of metric 0 over train.eval_batches micro-batches per rank, always the same samples. Equal on every rank.
// [collective]
double evaluate(TrainSetup& setup, int64_t step);

// Text that the model makes, or "" when it has no sampler. Every rank computes it. [collective]
std::string sample_text(TrainSetup& setup, const ddh_sampler* sampler, int64_t step);

}  // namespace ddhost
