// SPDX-License-Identifier: Apache-2.0
//
// gpt/dropout.hpp: the sites of dropout in a unit. ddh::Dropout computes the masks.
#pragma once

#include <ATen/core/Tensor.h>

#include "ddh/sdk/torch/dropout.hpp"
#include "layers.hpp"

namespace gpt {

enum class Site : uint64_t { kEmbedding, kAttention, kAttentionOut, kMlpOut };

inline bool drops(const UnitContext& u) { return u.training && u.config.dropout > 0; }

// Applies dropout to x in place. The first element of x has index `first` in the site's tensor. The backward is the
// same call.
inline at::Tensor dropout(const UnitContext& u, Site site, at::Tensor x, int64_t first = 0) {
  if (!drops(u)) return x;
  ddh::DropoutKey key = u.dropout;
  key.site = static_cast<uint64_t>(site);
  ddh::dropout_(ddh::Dropout(u.config.dropout, key), x, first);
  return x;
}

}  // namespace gpt
