// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/optim_state.hpp: the optimizer's slots for one flat range of parameters, and the call that updates it.
#pragma once

#include "ddh/sdk/layout.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class OptimState {
 public:
  // Slots for `numel` elements (padding included), of which `ranges` are parameters.
  OptimState(const Host& host, const std::string& name, std::vector<ddh_range> ranges, uint64_t numel)
      : host_(&host), ranges_(std::move(ranges)) {
    for (uint32_t i = 0; i < host.optim->slot_count(host.h); ++i) {
      slots_.emplace_back(host, DDH_TAG_OPTIM, numel * slot_bytes(host, i), str("optimizer slot of ", name));
    }
  }

  // Phase 2 of a step: one pass over master, gradient and slots.
  void update(float* master, const float* grad) {
    std::vector<void*> slots;
    for (const Buffer& slot : slots_) slots.push_back(slot.data());
    ddh_optim_shard shard{};
    shard.struct_size = sizeof shard;
    shard.n_ranges = static_cast<uint32_t>(ranges_.size());
    shard.ranges = ranges_.data();
    shard.master = master;
    shard.n_grads = 1;
    shard.grads = &grad;
    shard.slots = slots.data();
    shard.n_slots = static_cast<uint32_t>(slots.size());
    call(host_->optim->update, host_->h, &shard, nullptr);
  }

  void append_state_entries(std::vector<ddh_state_entry>& out, int32_t replica_index, int32_t replica_count) const {
    for (size_t i = 0; i < slots_.size(); ++i) {
      append_state(out, ranges_, DDH_STATE_SLOT, static_cast<int32_t>(i), slots_[i].f32(), replica_index,
                   replica_count);
    }
  }

  // Bytes that the optimizer keeps for one element.
  static uint64_t bytes_per_element(const Host& host) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < host.optim->slot_count(host.h); ++i) bytes += slot_bytes(host, i);
    return bytes;
  }

 private:
  static uint64_t slot_bytes(const Host& host, uint32_t index) {
    ddh_slot_desc desc{};
    desc.struct_size = sizeof desc;
    call(host.optim->slot, host.h, index, &desc);
    if (desc.extent != DDH_SLOT_PER_ELEMENT || desc.dtype != DDH_F32) {
      fail(DDH_FAILED_PRECONDITION,
           "this strategy keeps fp32 optimizer slots of one element for each of the parameter's; slot '", desc.name,
           "' is another; choose another optimizer");
    }
    return sizeof(float);
  }

  const Host* host_;
  std::vector<ddh_range> ranges_;
  std::vector<Buffer> slots_;
};

// Refuses, with a sentence, what a strategy that cuts parameters anywhere can't honour.
inline void require_elementwise(const Host& host, const ddh_model_desc& model, const char* strategy) {
  for (uint32_t p = 0; p < model.n_params; ++p) {
    if (host.optim->needs(host.h, static_cast<int32_t>(p)) == DDH_NEEDS_NOTHING) continue;
    fail(DDH_FAILED_PRECONDITION, strategy, " cuts parameters into ranges, but the optimizer needs '",
         model.params[p]->name, "' as a whole; choose an optimizer that works element by element");
  }
}

inline void require_fp32(const ddh_attach_args& args, const char* strategy) {
  if (args.compute_dtype != DDH_F32) {
    fail(DDH_FAILED_PRECONDITION, strategy, " computes in fp32; set precision.compute=fp32");
  }
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
