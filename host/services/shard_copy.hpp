// SPDX-License-Identifier: Apache-2.0
//
// services/shard_copy.hpp: a shard for the optimizer that outlives the call it came with, for an update that runs later
// in the order of a stream; and the memory that the update touches.
#pragma once

#include <vector>

#include "ddh/ddh.h"
#include "ddh/sdk/stream.hpp"

namespace ddhost {

class ShardCopy {
 public:
  ShardCopy(const ddh_optim_shard& shard, const ddh_optimizer_api& optimizer, ddh_inst* optimizer_inst);

  // Points into this object.
  [[nodiscard]] ddh_optim_shard shard() const;
  // Masters, copies and slots that lie under the ranges, and the gradients.
  [[nodiscard]] ddh::Accesses accesses() const;

 private:
  struct Slot {
    uint64_t element_bytes;
    bool per_element;
  };
  ddh_optim_shard shard_;
  std::vector<ddh_range> ranges_;
  std::vector<const float*> grads_;
  std::vector<void*> slots_;
  std::vector<Slot> slot_kinds_;
};

}  // namespace ddhost
