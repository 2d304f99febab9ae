// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/optim/optim_state.hpp: the optimizer state of a flat range: the optimizer's slots, and the fp32 master if the
// values have a low precision. Initial values, the update, and the entries of a checkpoint.
#pragma once

#include "ddh/sdk/optim/slot_layout.hpp"
#include "ddh/sdk/params/layout.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// Initial values of low-precision parameters without a master, written to `values` from r.flat_offset on.
void init_rounded(const Host& host, const ddh_range& r, int32_t dtype, void* values);
// What that takes of DDH_TAG_COMM on a rank meanwhile; 0: the rank has no such parameters.
[[nodiscard]] uint64_t init_rounded_bytes(const ModelLayout& layout, int32_t rank);

// Rounds `numel` fp32 elements to `dtype`, on the default stream.
void round_to(const Host& host, void* to, int32_t dtype, const float* from, uint64_t numel);

// One flat range in memory, seen by the optimizer.
struct StateArrays {
  void* values = nullptr;                     // the values in views, of `dtype`
  int32_t dtype = DDH_F32;                    // of values
  float* master = nullptr;                    // if values have a low precision and are trained; else nullptr
  const std::vector<void*>* slots = nullptr;  // per slot of the optimizer; nullptr entries: not used
};
// The argument of prepare and update: one source of gradients, `grad`. Points into its arguments.
ddh_optim_shard shard_of(const std::vector<ddh_range>& ranges, const StateArrays& arrays, const float* const* grad);

// The optimizer state of one flat range on a rank. The caller owns the values; every call gets the same pointer.
class OptimState {
 public:
  // For `numel` elements of a space (including padding); `ranges` are its parameters. Parameters that no program trains
  // have neither slots nor master. `memory`: DDH_MEM_* of slots, master and values.
  OptimState(const Host& host, const FlatSpace& space, std::vector<ddh_range> ranges, uint64_t numel,
             int32_t memory = DDH_MEM_DEVICE);

  // Bytes under DDH_TAG_OPTIM for `numel` elements of a space from `offset` on.
  static uint64_t bytes(const Host& host, const FlatSpace& space, uint64_t numel, uint64_t offset = 0);

  // Sets the initial values of the parameters.
  void init(void* values);

  // Called before update with the same values and gradients. Computes this shard's part of norms of whole parameters;
  // does nothing for most optimizers. sum_norms follows, once for all states.
  void prepare(void* values, const float* grad, Replica replica);

  // Phase 2 of a step: one pass over master, gradient and slots, which also writes the values.
  void update(void* values, const float* grad);

  // A load has written the master: updates the values.
  void refresh(void* values);

  // Frees the slots that no parameter of the space uses any more.
  void free_unused(const FlatSpace& space);

  // Entries for values (the master if there is one) and slots.
  void append_state(std::vector<ddh_state_entry>& out, void* values, Replica replica) const;

 private:
  [[nodiscard]] ddh_optim_shard shard(void* values, const float* const* grad) const;
  [[nodiscard]] bool has_master() const { return trained_ && dtype_ != DDH_F32; }
  // fp32 values to update; nullptr where there are none.
  [[nodiscard]] float* master_values(void* values) const;

  const Host* host_;
  std::vector<ddh_range> ranges_;
  int32_t dtype_;
  int32_t memory_;
  bool trained_;
  Buffer master_;
  std::vector<SlotLayout> layouts_;  // per slot of the optimizer
  std::vector<Buffer> slots_;
  std::vector<void*> slot_pointers_;
};

// Called after the gradients are summed. Computes their norm and the clip factor over all ranks, and whether the step
// is skipped. The result stays valid until the next step begins. prepare and update read it; a strategy need not.
const ddh_step_block& decide(const Host& host);

// The same in a group of this rank (ddh_decide_args.flags).
const ddh_step_block& decide_in(const Host& host, ddh_group* group, uint32_t flags);

// Called after prepare on every state of this step, before the updates: sums the norms of whole parameters over all
// ranks.
void sum_norms(const Host& host);

// Per parameter: whether the optimizer needs it whole. Used by the layout.
std::vector<bool> whole_params(const Host& host, const ddh_model_desc& model);

}  // namespace DDH_HIDDEN
}  // namespace ddh
