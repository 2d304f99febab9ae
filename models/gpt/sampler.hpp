// SPDX-License-Identifier: Apache-2.0
//
// gpt/sampler.hpp: generates text, one token for each run of the eval program. The seed determines it, so every rank
// draws the same tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "../ops/draw.hpp"
#include "config.hpp"
#include "layers.hpp"

namespace gpt {

class DDH_HIDDEN Sampler {
 public:
  // Length, seed, temperature and top_k are those of `args`. An empty prompt begins with `start`, which is not shown.
  void begin(std::vector<int64_t> prompt, int64_t start, const ddh_sample_args& args, const Config& config);
  // The last `context` tokens as a batch of one; nullptr when `length` tokens have been drawn.
  std::unique_ptr<GptBatch> next();
  // Logits (N, V) of an eval run; ignored unless the run is for a batch of this sampler.
  void see(const at::Tensor& logits);
  // Prompt and drawn tokens.
  [[nodiscard]] std::vector<int64_t> shown_ids() const { return {ids_.begin() + n_hidden_, ids_.end()}; }

 private:
  std::vector<int64_t> ids_;
  int64_t n_hidden_ = 0;  // leading ids that are not shown
  int64_t context_ = 0;
  uint32_t remaining_ = 0;
  ops::Drawer drawer_;
  bool waiting_ = false;  // for the logits of a batch
};

}  // namespace gpt
