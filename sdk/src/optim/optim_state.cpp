// SPDX-License-Identifier: Apache-2.0
//
// Optimizer slots, masters, initial values and the update of one flat range.
#include "ddh/sdk/optim/optim_state.hpp"

#include <algorithm>

namespace ddh {
inline namespace v1 DDH_HIDDEN {

namespace {
constexpr uint64_t kPieceNumel = 64 * kGrid;  // of initial values in transfer
}  // namespace

uint64_t init_rounded_bytes(const ModelLayout& layout, int32_t rank) {
  const auto is_rounded = [rank](const FlatSpace& space) {
    return !space.trained() && space.dtype != DDH_F32 && space.segment_numel(rank) > 0;
  };
  return std::any_of(layout.spaces.begin(), layout.spaces.end(), is_rounded) ? kPieceNumel * sizeof(float) : 0;
}

void init_rounded(const Host& host, const ddh_range& r, int32_t dtype, void* values) {
  const Buffer piece(host, DDH_TAG_COMM, kPieceNumel * sizeof(float), "initial values in transfer");
  for (uint64_t done = 0; done < r.numel; done += kPieceNumel) {
    const uint64_t numel = std::min(kPieceNumel, r.numel - done);
    call(host.params->init_range, host.h, r.param, r.param_offset + done, numel, piece.f32());
    round_to(host, element_at(values, dtype, r.flat_offset + done), dtype, piece.f32(), numel);
  }
  call(host.stream->synchronize, host.h, nullptr);  // before the piece is released
}

void round_to(const Host& host, void* to, int32_t dtype, const float* from, uint64_t numel) {
  call(host.flatops->cast, host.h, to, dtype, from, DDH_F32, numel, nullptr);
}

ddh_optim_shard shard_of(const std::vector<ddh_range>& ranges, const StateArrays& arrays, const float* const* grad) {
  ddh_optim_shard shard{};
  shard.struct_size = sizeof shard;
  shard.n_ranges = static_cast<uint32_t>(ranges.size());
  shard.ranges = ranges.data();
  shard.master = arrays.master;
  if (arrays.master != nullptr) {
    shard.lowp = arrays.values;
    shard.lowp_dtype = arrays.dtype;
  } else if (arrays.dtype == DDH_F32) {
    shard.master = static_cast<float*>(arrays.values);
  }
  shard.n_grads = 1;
  shard.grads = grad;
  shard.slots = arrays.slots->data();
  shard.n_slots = static_cast<uint32_t>(arrays.slots->size());
  return shard;
}

OptimState::OptimState(const Host& host, const FlatSpace& space, std::vector<ddh_range> ranges, uint64_t numel,
                       int32_t memory)
    : host_(&host), ranges_(std::move(ranges)), dtype_(space.dtype), memory_(memory), trained_(space.trained()) {
  if (!trained_) return;
  const auto buffer = [&](const char* what, uint64_t bytes) {
    return Buffer(host, DDH_TAG_OPTIM, bytes, str(what, space.name), DDH_ALLOC_ZERO, memory);
  };
  if (dtype_ != DDH_F32) master_ = buffer("master of ", numel * sizeof(float));
  layouts_ = slot_layouts(host);
  for (const SlotLayout& slot : layouts_) {
    slots_.push_back(slot.is_used(space) ? buffer("optimizer slot of ", slot.bytes(ranges_, numel)) : Buffer());
    slot_pointers_.push_back(slots_.back().data());
  }
}

uint64_t OptimState::bytes(const Host& host, const FlatSpace& space, uint64_t numel, uint64_t offset) {
  if (!space.trained()) return 0;
  uint64_t bytes = space.dtype != DDH_F32 ? numel * sizeof(float) : 0;
  const std::vector<ddh_range> ranges = space.ranges(offset, numel);
  for (const SlotLayout& slot : slot_layouts(host)) bytes += slot.is_used(space) ? slot.bytes(ranges, numel) : 0;
  return bytes;
}

void OptimState::init(void* values) {
  for (const ddh_range& r : ranges_) {
    if (float* to = master_values(values)) {
      call(host_->params->init_range, host_->h, r.param, r.param_offset, r.numel, to + r.flat_offset);
    } else {
      init_rounded(*host_, r, dtype_, values);
    }
  }
  refresh(values);
}

void OptimState::prepare(void* values, const float* grad, Replica replica) {
  const ddh_optim_shard mine = shard(values, &grad);
  call(host_->optim->prepare, host_->h, &mine, replica.index, replica.count, nullptr);
}

void OptimState::update(void* values, const float* grad) {
  const ddh_optim_shard mine = shard(values, &grad);
  call(host_->optim->update, host_->h, &mine, nullptr);
}

void OptimState::refresh(void* values) {
  if (!has_master()) return;
  for (const ddh_range& r : ranges_)
    round_to(*host_, element_at(values, dtype_, r.flat_offset), dtype_, master_.f32() + r.flat_offset, r.numel);
}

void OptimState::free_unused(const FlatSpace& space) {
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (layouts_[i].is_used(space)) continue;
    slots_[i] = Buffer();
    slot_pointers_[i] = nullptr;
  }
}

void OptimState::append_state(std::vector<ddh_state_entry>& out, void* values, Replica replica) const {
  const bool low = has_master();
  ddh::append_state(out, ranges_, DDH_STATE_PARAM, 0, low ? DDH_F32 : dtype_, low ? master_.data() : values, replica,
                    memory_);
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].data() == nullptr) continue;
    layouts_[i].append_state(out, ranges_, slots_[i].data(), replica, memory_);
  }
}

ddh_optim_shard OptimState::shard(void* values, const float* const* grad) const {
  return shard_of(ranges_, {values, dtype_, has_master() ? master_.f32() : nullptr, &slot_pointers_}, grad);
}

float* OptimState::master_values(void* values) const {
  if (has_master()) return master_.f32();
  return dtype_ == DDH_F32 ? static_cast<float*>(values) : nullptr;
}

const ddh_step_block& decide(const Host& host) {
  const ddh_step_block* block = nullptr;
  call(host.optim->decide, host.h, &block);
  return *block;
}

const ddh_step_block& decide_in(const Host& host, ddh_group* group, uint32_t flags) {
  if (!DDH_CAN(host.optim, ddh_optim_api, decide_in))
    fail(DDH_UNIMPLEMENTED, "this host decides no step in a group (ddh.optim decide_in); update ddhost");
  const ddh_decide_args args{sizeof(ddh_decide_args), flags, group};
  const ddh_step_block* block = nullptr;
  call(host.optim->decide_in, host.h, &args, &block);
  return *block;
}

void sum_norms(const Host& host) { call(host.optim->sum_norms, host.h); }

std::vector<bool> whole_params(const Host& host, const ddh_model_desc& model) {
  std::vector<bool> whole(model.n_params);
  for (uint32_t p = 0; p < model.n_params; ++p)
    whole[p] = host.optim->needs(host.h, static_cast<int32_t>(p)) == DDH_NEEDS_WHOLE_PARAM;
  return whole;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
