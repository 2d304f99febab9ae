// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/optim_state.hpp: what a rank keeps of a flat range beside the values that units see: the optimizer's slots, and
// the fp32 master where the values are of a low precision. First values, the update, and the entries of a checkpoint.
#pragma once

#include "ddh/sdk/layout.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// First values of parameters that have no master: `values`, of a low precision, from r.flat_offset on.
inline void init_rounded(const Host& host, const ddh_range& r, int32_t dtype, void* values) {
  constexpr uint64_t kPieceNumel = 64 * kGrid;
  const Buffer piece(host, DDH_TAG_COMM, kPieceNumel * sizeof(float), "first values on their way");
  char* const to = static_cast<char*>(values) + r.flat_offset * ddh_dtype_bytes(dtype);
  for (uint64_t done = 0; done < r.numel; done += kPieceNumel) {
    const uint64_t numel = std::min(kPieceNumel, r.numel - done);
    call(host.params->init_range, host.h, r.param, r.param_offset + done, numel, piece.f32());
    call(host.flatops->cast, host.h, to + done * ddh_dtype_bytes(dtype), dtype, piece.f32(), DDH_F32, numel, nullptr);
  }
  call(host.stream->synchronize, host.h, nullptr);  // before the piece is released
}

class OptimState {
 public:
  // For `numel` elements of a space (padding included), of which `ranges` are parameters. Parameters that no program
  // trains have neither slots nor master. `memory`: DDH_MEM_* of these, and of the values.
  OptimState(const Host& host, const FlatSpace& space, std::vector<ddh_range> ranges, uint64_t numel,
             int32_t memory = DDH_MEM_DEVICE)
      : host_(&host), ranges_(std::move(ranges)), dtype_(space.dtype), memory_(memory), trained_(space.trained()) {
    if (!trained_) return;
    const auto buffer = [&](const char* what, uint64_t bytes) {
      return Buffer(host, DDH_TAG_OPTIM, numel * bytes, str(what, space.name), DDH_ALLOC_ZERO, memory);
    };
    if (dtype_ != DDH_F32) master_ = buffer("master of ", sizeof(float));
    for (uint32_t i = 0; i < host.optim->slot_count(host.h); ++i) {
      const uint64_t bytes = slot_bytes(host, space, i);
      slots_.push_back(bytes == 0 ? Buffer() : buffer("optimizer slot of ", bytes));
      slot_pointers_.push_back(slots_.back().data());
    }
  }

  // Bytes under DDH_TAG_OPTIM for `numel` elements of a space.
  static uint64_t bytes(const Host& host, const FlatSpace& space, uint64_t numel) {
    if (!space.trained()) return 0;
    uint64_t per_element = space.dtype != DDH_F32 ? sizeof(float) : 0;
    for (uint32_t i = 0; i < host.optim->slot_count(host.h); ++i) per_element += slot_bytes(host, space, i);
    return numel * per_element;
  }

  // Of slot `index` for an element of a space; 0 where none of its parameters uses it. Refuses slots of other kinds.
  static uint64_t slot_bytes(const Host& host, const FlatSpace& space, uint32_t index) {
    const auto uses = [&](const PlacedParam& p) { return host.optim->slot_used(host.h, index, p.param) != 0; };
    if (std::none_of(space.params.begin(), space.params.end(), uses)) return 0;
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

  // First values of the parameters.
  void init(void* values) {
    for (const ddh_range& r : ranges_) {
      if (float* to = master_values(values)) {
        call(host_->params->init_range, host_->h, r.param, r.param_offset, r.numel, to + r.flat_offset);
      } else {
        init_rounded(*host_, r, dtype_, values);
      }
    }
    refresh(values);
  }

  // Before update, with the same values and gradients: what norms of whole parameters stand on; for most optimizers
  // nothing. sum_norms follows, once for all states.
  void prepare(void* values, const float* grad, Replica replica) {
    const ddh_optim_shard shard = shard_of(values, &grad);
    call(host_->optim->prepare, host_->h, &shard, replica.index, replica.count, nullptr);
  }

  // Phase 2 of a step: one pass over master, gradient and slots, which also writes the values.
  void update(void* values, const float* grad) {
    const ddh_optim_shard shard = shard_of(values, &grad);
    call(host_->optim->update, host_->h, &shard, nullptr);
  }

  // The master was written from outside (a load): the values follow.
  void refresh(void* values) {
    if (!has_master()) return;
    for (const ddh_range& r : ranges_) cast(at(values, r.flat_offset), master_.f32() + r.flat_offset, r.numel);
  }

  // Values (the master where there is one) and slots.
  void append_state(std::vector<ddh_state_entry>& out, void* values, Replica replica) const {
    const bool low = has_master();
    ddh::append_state(out, ranges_, DDH_STATE_PARAM, 0, low ? DDH_F32 : dtype_, low ? master_.data() : values, replica,
                      memory_);
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].data() == nullptr) continue;
      ddh::append_state(out, ranges_, DDH_STATE_SLOT, static_cast<int32_t>(i), DDH_F32, slots_[i].data(), replica,
                        memory_);
    }
  }

 private:
  // As the optimizer gets it; valid while `grad` points at the gradients.
  ddh_optim_shard shard_of(void* values, const float* const* grad) {
    ddh_optim_shard shard{};
    shard.struct_size = sizeof shard;
    shard.n_ranges = static_cast<uint32_t>(ranges_.size());
    shard.ranges = ranges_.data();
    shard.master = master_values(values);
    if (has_master()) {
      shard.lowp = values;
      shard.lowp_dtype = dtype_;
    }
    shard.n_grads = 1;
    shard.grads = grad;
    shard.slots = slot_pointers_.data();
    shard.n_slots = static_cast<uint32_t>(slot_pointers_.size());
    return shard;
  }
  [[nodiscard]] bool has_master() const { return trained_ && dtype_ != DDH_F32; }
  // fp32 values to update; nullptr where there are none.
  [[nodiscard]] float* master_values(void* values) const {
    if (has_master()) return master_.f32();
    return dtype_ == DDH_F32 ? static_cast<float*>(values) : nullptr;
  }
  void* at(void* values, uint64_t offset) const {
    return static_cast<char*>(values) + offset * ddh_dtype_bytes(dtype_);
  }
  void cast(void* to, const float* from, uint64_t numel) const {
    call(host_->flatops->cast, host_->h, to, dtype_, from, DDH_F32, numel, nullptr);
  }

  const Host* host_;
  std::vector<ddh_range> ranges_;
  int32_t dtype_;
  int32_t memory_;
  bool trained_;
  Buffer master_;
  std::vector<Buffer> slots_;
  std::vector<void*> slot_pointers_;
};

// After the gradients are summed: their norm and the clip factor, over all ranks, and whether the step is skipped. It
// stays valid until the next step begins; a strategy need not look at it: prepare and update do.
inline const ddh_step_block& decide(const Host& host) {
  const ddh_step_block* block = nullptr;
  call(host.optim->decide, host.h, &block);
  return *block;
}

// After prepare on every state of this step, before the updates: the norms of whole parameters, over all ranks.
inline void sum_norms(const Host& host) { call(host.optim->sum_norms, host.h); }

// Per parameter: whether the optimizer needs it whole, for the layout.
inline std::vector<bool> whole_params(const Host& host, const ddh_model_desc& model) {
  std::vector<bool> whole(model.n_params);
  for (uint32_t p = 0; p < model.n_params; ++p)
    whole[p] = host.optim->needs(host.h, static_cast<int32_t>(p)) == DDH_NEEDS_WHOLE_PARAM;
  return whole;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
