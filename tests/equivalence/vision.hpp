// SPDX-License-Identifier: Apache-2.0
//
// tests/equivalence/vision.hpp: options of runs of a small convolutional network with all kinds of randomness.
#pragma once

#include <cmath>
#include <fstream>

#include "equivalence/precisions.hpp"
#include "fixtures/harness/safetensors.hpp"

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

using Tensors = std::map<std::string, GoldenTensor>;
// Parameters and running statistics.
inline Tensors tensors_of(const Result& result) {
  const TempFolder folder;
  const std::string path = folder.file("weights");
  std::ofstream(path, std::ios::binary) << result.weights;
  return read_safetensors(path).tensors;
}

// An option with a file of weights in `folder` for a network of `options` with a frozen trunk. Frozen batch norms of fresh
// statistics do not normalize, so the features of torchvision's initial values would be 1e-9, and a head would train on
// nothing. Here the depthwise convolutions, (channels, 1, side, side), are larger.
inline std::string weights_with_features(const TempFolder& folder, const Options& options) {
  Tensors tensors = tensors_of(run({kReference, 1, vision(joined(options, {"optimizer.lr=0"})), 1, "cnn"}));
  for (auto& [name, tensor] : tensors) {
    if (tensor.shape.size() != 4 || tensor.shape[1] != 1) continue;
    std::vector<float> values = tensor.f32();
    for (float& v : values) v *= std::sqrt(static_cast<float>(tensor.shape[0]));
    std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  }
  write_safetensors(folder.file("features.safetensors"), tensors);
  return "train.init_from=" + folder.file("features.safetensors");
}

// Runs "vit" or "cnn" under every strategy, or under some.
inline void check_vision(const std::string& model, int world, const Options& options,
                         const std::vector<Variant>& ways = kOneOfEachStrategy) {
  check_strategies({kReference, world, options, kVisionSteps, model}, 1, nullptr, ways);
}

}  // namespace ddhost::test
