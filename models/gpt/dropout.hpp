// SPDX-License-Identifier: Apache-2.0
//
// gpt/dropout.hpp: dropout whose mask is a function of (seed, step, unit, site, global sample index, element), so that
// neither recompute nor strategy nor world size changes it.
#pragma once

#include <ATen/core/Tensor.h>

#include "layers.hpp"

namespace gpt {

// The places of a unit that have dropout.
enum class Site : uint64_t { kEmbedding, kAttention, kAttentionOut, kMlpOut };

// x with dropout, in place; x holds equal parts for the samples of the batch, in order. The backward is the same call.
at::Tensor dropout(const UnitContext& u, Site site, at::Tensor x);

}  // namespace gpt
