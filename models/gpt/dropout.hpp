// SPDX-License-Identifier: Apache-2.0
//
// gpt/dropout.hpp: the places of a unit that have dropout.
#pragma once

#include <ATen/core/Tensor.h>

#include "../ops/dropout.hpp"
#include "layers.hpp"

namespace gpt {

enum class Site : uint64_t { kEmbedding, kAttention, kAttentionOut, kMlpOut };

inline bool drops(const UnitContext& u) { return u.training && u.config.dropout > 0; }

inline ops::DropoutPlace place(const UnitContext& u, Site site) {
  ddh::DropoutKey key = u.dropout;
  key.site = static_cast<uint64_t>(site);
  return {u.training ? u.config.dropout : 0, key};
}

// x with dropout, in place. The backward is the same call.
inline at::Tensor dropout(const UnitContext& u, Site site, at::Tensor x) {
  return ops::dropout(place(u, site), std::move(x));
}

}  // namespace gpt
