// SPDX-License-Identifier: Apache-2.0
//
// cad_mllm/sampler.hpp: generates a CAD sequence after a prompt, an image and points: one token for each run of the
// evaluation program, until the end mark.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "../ops/draw.hpp"
#include "batch.hpp"

namespace cad {

class DDH_HIDDEN Sampler {
 public:
  void begin(const Config& config, int32_t stage, const std::string& prompt, Item item, Inputs has,
             const ddh_sample_args& args);
  // The sequence so far as a batch of one; nullopt: it has ended.
  std::optional<CadBatch> next(const Config& config);
  // Logits (1, V) of a batch of this sampler.
  void see(const at::Tensor& logits);
  [[nodiscard]] const std::vector<int64_t>& ids() const { return ids_; }

 private:
  int32_t stage_ = 0;
  Item item_;
  Inputs has_{true, false, false};
  std::vector<int64_t> ids_;
  int64_t remaining_ = 0;
  ops::Drawer drawer_;
};

}  // namespace cad
