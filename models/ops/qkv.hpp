// SPDX-License-Identifier: Apache-2.0
//
// ops/qkv.hpp: queries, keys and values of a sequence as views of one tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <utility>

#include "ddh/sdk/structs.hpp"

namespace ops {

// q, k and v as (B, H, T, D), views of (B, T, 3, H, D).
struct DDH_HIDDEN Qkv {
  at::Tensor q, k, v;
  explicit Qkv(const at::Tensor& qkv) : Qkv(qkv.permute({2, 0, 3, 1, 4}), 0) {}
  // A range of samples (dim 0) or of heads (dim 1).
  [[nodiscard]] Qkv part(int64_t dim, int64_t first, int64_t n) const {
    return {q.narrow(dim, first, n), k.narrow(dim, first, n), v.narrow(dim, first, n)};
  }
  // The factor of the scores: 1 / sqrt(D).
  [[nodiscard]] double scale() const { return 1 / std::sqrt(static_cast<double>(q.size(-1))); }

 private:
  Qkv(const at::Tensor& p, int) : q(p.select(0, 0)), k(p.select(0, 1)), v(p.select(0, 2)) {}
  Qkv(at::Tensor q_part, at::Tensor k_part, at::Tensor v_part)
      : q(std::move(q_part)), k(std::move(k_part)), v(std::move(v_part)) {}
};

}  // namespace ops
