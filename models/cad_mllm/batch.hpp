// SPDX-License-Identifier: Apache-2.0
//
// cad_mllm/batch.hpp: samples of a micro-batch as tensors. The tokens of a sample are [image] [point cloud] [text]: the text
// is padded at the right to the longest of the micro-batch, and a sample without an image or without points has zeros.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "config.hpp"
#include "data.hpp"

namespace cad {

// What the stages of the curriculum know.
inline constexpr int32_t kStages = 3;
inline constexpr Inputs kStageInputs[kStages] = {{true, false, false}, {true, true, false}, {true, true, true}};

inline constexpr int64_t kNoTarget = -100;

// What the units read: on the host, or copies on the device.
struct CadTensors {
  at::Tensor ids;      // (B, T) int64
  at::Tensor pixels;   // (B views, 3, side, side) fp32; undefined where the stage has none
  at::Tensor points;   // (B, N, 6) fp32; likewise
  at::Tensor rows;     // (R) int64: those of the (B tokens) rows whose logits are wanted
  at::Tensor targets;  // (R) int64: the token after each; kNoTarget: none
};

struct CadBatch : CadTensors {
  int64_t B = 0, T = 0;                 // T: of the text
  std::vector<int64_t> sample_of_row;   // (R)
  int64_t n_targets = 0, n_tokens = 0;  // tokens: of image, points and text, without padding
  bool is_of_sampler = false;
  bool keeps_logits = false;
  std::vector<float> logits;  // (R, V) of the last forward of a batch that keeps them

  [[nodiscard]] int64_t bytes() const;
};

// A text in tokens; tokens from `first_target` on are targets.
struct Sequence {
  std::vector<int64_t> ids;
  int64_t first_target = 0;
};

// Prompt, target, end mark. Throws ddh::Error where they are longer than max_tokens.
Sequence sequence_of(const Config& config, const std::string& prompt, const std::string& target);

// Puts samples together. `stage` decides which encoders run.
class BatchMaker {
 public:
  BatchMaker(const Config& config, int32_t stage) : config_(config), inputs_(kStageInputs[stage]) {}
  void add(Sequence sequence, const Item& item, Inputs has);
  [[nodiscard]] CadBatch made() const;
  [[nodiscard]] int64_t prefix() const {
    return (inputs_.image ? config_.image.tokens() : 0) + (inputs_.points ? 1 : 0);
  }

 private:
  const Config& config_;
  const Inputs inputs_;
  std::vector<Sequence> sequences_;
  std::vector<float> pixels_, points_;
};

}  // namespace cad
