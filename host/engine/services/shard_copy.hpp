// SPDX-License-Identifier: Apache-2.0
//
// engine/services/shard_copy.hpp: a copy of a shard's tables, for an update that runs later on a stream; and the memory
// that the update accesses.
#pragma once

#include <vector>

#include "ddh/ddh.h"
#include "ddh/sdk/stream.hpp"

namespace ddhost {

class ShardCopy {
 public:
  // `slots`: those of the optimizer, each of one element for each of the parameter's.
  ShardCopy(const ddh_optim_shard& shard, const std::vector<ddh_slot_desc>& slots);

  // Points into this object.
  [[nodiscard]] ddh_optim_shard shard() const;
  // Masters, low-precision copies, slots and gradients of the ranges.
  [[nodiscard]] ddh::Accesses accesses() const;

 private:
  ddh_optim_shard shard_;
  std::vector<ddh_range> ranges_;
  std::vector<const float*> grads_;
  std::vector<void*> slots_;
  std::vector<uint64_t> slot_bytes_;  // of an element
};

}  // namespace ddhost
