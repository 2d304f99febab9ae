// SPDX-License-Identifier: Apache-2.0
//
// tests/equivalence/vision.hpp: options of runs of a small convolutional network with all kinds of randomness.
#pragma once

#include "equivalence/precisions.hpp"

namespace ddhost::test {

inline constexpr int kVisionSteps = 3;  // evaluated after the last

// Of any network.
inline Options vision(const Options& more) {
  Options all = {"model.dataset=made_up",     "model.dropout=0.2",   "model.mixup=0.4",    "model.crop_padding=2",
                 "model.label_smoothing=0.1", "train.clip_norm=0.5", "train.eval_every=3", "train.eval_batches=3"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

inline Options cnn(const Options& more) {
  Options all = {"model.network=basic", "model.widths=[4, 6]", "model.hidden=8", "model.padding=1",
                 "model.batch_norm=true"};
  all.insert(all.end(), more.begin(), more.end());
  return vision(all);
}

// Runs "vit" or "cnn" under every strategy.
inline void check_vision(const std::string& model, int world, const Options& options) {
  check_strategies({kReference, world, options, kVisionSteps, model}, 1);
}

}  // namespace ddhost::test
