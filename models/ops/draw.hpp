// SPDX-License-Identifier: Apache-2.0
//
// ops/draw.hpp: draws the next item of a sequence from logits. The seed and the number of the draw determine it, so every
// rank draws the same.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ddh/kind/model.h"
#include "ddh/sdk/plugin.hpp"

namespace ops {

class DDH_HIDDEN Drawer {
 public:
  Drawer() = default;
  // Seed, temperature and top_k are those of `args`. Throws ddh::Error.
  explicit Drawer(const ddh_sample_args& args);
  int64_t draw(const at::Tensor& logits);  // (V)

 private:
  uint64_t seed_ = 0, draws_ = 0;
  double temperature_ = 0;
  int64_t top_k_ = 0;
};

}  // namespace ops
