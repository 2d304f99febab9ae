// SPDX-License-Identifier: Apache-2.0
//
// gpt/dropout.hpp: the places of a unit that have dropout. Masks are ddh::Dropout's.
#pragma once

#include <ATen/core/Tensor.h>

#include "ddh/sdk/torch/dropout.hpp"
#include "layers.hpp"

namespace gpt {

enum class Site : uint64_t { kEmbedding, kAttention, kAttentionOut, kMlpOut };

inline bool drops(const UnitContext& u) { return u.training && u.config.dropout > 0; }

// x with dropout, in place; the first element of x is number `first` of the site's tensor. The backward is the same call.
inline at::Tensor dropout(const UnitContext& u, Site site, at::Tensor x, int64_t first = 0) {
  if (!drops(u)) return x;
  ddh::DropoutKey key = u.dropout;
  key.site = static_cast<uint64_t>(site);
  ddh::dropout_(ddh::Dropout(u.config.dropout, key), x, first);
  return x;
}

}  // namespace gpt
