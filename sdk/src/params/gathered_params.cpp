// SPDX-License-Identifier: Apache-2.0
//
// Full views of parameters: opened, counted and closed.
#include "ddh/sdk/params/gathered_params.hpp"

#include "ddh/sdk/collective.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

void* segment_in(const FlatSpace& space, int32_t rank, void* view) {
  return element_at(view, space.dtype, space.cut.segment_offset[static_cast<size_t>(rank)]);
}

void gather_segments(const Host& host, ddh_group* group, const FlatSpace& space, int32_t rank, void* view) {
  ddh_coll c = collective(space.dtype, space.name.c_str());
  c.send = segment_in(space, rank, view);
  c.recv = view;
  c.counts = space.cut.segment_numel.data();
  c.group = group;
  call(host.comm->all_gather, host.h, &c);
}

GatheredParams::GatheredParams(const Host& host, const ModelLayout& layout, ddh_group* group, int32_t rank,
                               ViewSource* source)
    : host_(&host),
      layout_(&layout),
      group_(group),
      rank_(rank),
      source_(source),
      gathers_by_copy_(source != nullptr || (host.window->caps(host.h, group) & DDH_COMM_SHARED_VIEW) == 0) {
  for (const FlatSpace& space : layout.spaces) {
    states_.emplace_back();
    if (opens_in_slot(space)) slot_bytes_ = std::max(slot_bytes_, space.value_bytes());
  }
}

uint64_t GatheredParams::resting_bytes() const {
  uint64_t bytes = source_ != nullptr ? source_->resting_bytes() : 0;
  for (const FlatSpace& space : layout_->spaces) {
    if (has_windows()) bytes += space.persistent ? space.value_bytes() : space.value_segment_bytes(rank_);
    if (has_own_buffer(space)) bytes += backing_bytes(space.value_bytes());
  }
  return bytes;
}

void GatheredParams::materialize() {
  is_dry_ = false;
  if (source_ != nullptr) source_->materialize();
  for (size_t s = 0; s < states_.size(); ++s) {
    const FlatSpace& space = layout_->spaces[s];
    if (has_windows()) states_[s].window.emplace(*host_, group_, space, space.persistent ? DDH_WINDOW_PERMANENT : 0U);
    if (has_own_buffer(space)) {
      states_[s].own_buffer =
          Buffer(*host_, DDH_TAG_PARAM, backing_bytes(space.value_bytes()), str("gathered ", space.name));
    }
  }
}

void GatheredParams::acquire(const std::vector<size_t>& spaces) {
  open(spaces);
  for (const size_t s : spaces) {
    ++states_[s].acquired;
    if (std::exchange(states_[s].is_begun, false)) source_->finish_open(s, states_[s].view);
  }
}

void GatheredParams::release(const std::vector<size_t>& spaces) {
  for (const size_t s : spaces) --states_[s].acquired;
}

void GatheredParams::open(const std::vector<size_t>& spaces) {
  for (const size_t s : spaces) {
    if (!states_[s].is_open) open_one(s);
  }
}

void GatheredParams::close_others() {
  for (size_t s = 0; s < states_.size(); ++s) {
    const bool is_kept = std::exchange(states_[s].is_kept, false);
    if (states_[s].is_open && states_[s].acquired == 0 && !is_kept) close_one(s);
  }
}

bool GatheredParams::has_own_buffer(const FlatSpace& space) const {
  return gathers_by_copy_ && space.shared && !space.persistent;
}

bool GatheredParams::opens_in_slot(const FlatSpace& space) const {
  return gathers_by_copy_ && !space.shared && !space.persistent;
}

uint64_t GatheredParams::backing_bytes(uint64_t view_bytes) const {
  return source_ != nullptr ? source_->backing_bytes(view_bytes) : view_bytes;
}

void GatheredParams::open_one(size_t s) {
  State& state = states_[s];
  state.is_open = true;
  state.is_begun = source_ != nullptr;
  ++opens_;
  ++n_open_;
  count(s, +1);
  if (is_dry_ && source_ != nullptr) source_->open(s, nullptr, nullptr);
  if (is_dry_) return count_sent(s);
  void* backing = state.own_buffer.data();
  if (opens_in_slot(layout_->spaces[s])) backing = slots_[state.slot = take_slot()].data();
  if (source_ == nullptr) {
    state.view = state.window->open(backing);
    return;
  }
  state.view = source_->view_in(s, backing);
  source_->open(s, state.window ? &*state.window : nullptr, state.view);
}

void GatheredParams::close_one(size_t s) {
  State& state = states_[s];
  state.is_open = state.is_begun = false;
  --n_open_;
  count(s, -1);
  if (source_ != nullptr)
    source_->close(s, state.window ? &*state.window : nullptr, state.view);
  else if (!is_dry_)
    state.window->close();
  if (is_dry_) return;
  state.view = nullptr;
  if (state.slot != SIZE_MAX) free_slots_.push_back(state.slot);
  state.slot = SIZE_MAX;
}

void GatheredParams::count(size_t s, int sign) {
  const FlatSpace& space = layout_->spaces[s];
  if (space.persistent) return;
  uint64_t bytes = space.value_bytes() - space.value_segment_bytes(rank_);
  if (gathers_by_copy_) bytes = space.shared ? 0 : backing_bytes(slot_bytes_);
  open_numel_ += sign > 0 ? space.numel : uint64_t{0} - space.numel;
  open_bytes_ = sign > 0 ? open_bytes_ + bytes : open_bytes_ - bytes;
  peak_open_bytes_ = std::max(peak_open_bytes_, open_bytes_);
}

void GatheredParams::count_sent(size_t s) {
  const FlatSpace& space = layout_->spaces[s];
  if (!gathers_by_copy_ || space.persistent) return;
  const std::optional<SentBytes> sent = source_ != nullptr ? source_->sent_in_open(s) : std::nullopt;
  sent_ += sent.value_or(layout_->sent_values(space));
}

size_t GatheredParams::take_slot() {
  if (free_slots_.empty()) {
    slots_.emplace_back(*host_, DDH_TAG_PARAM, backing_bytes(slot_bytes_), "gathered parameters");
    return slots_.size() - 1;
  }
  const size_t slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void run_uses(const RunProgram& program, uint32_t micro_batches,
              const std::function<void(const ddh_unit_use&)>& use_unit) {
  const std::vector<int32_t> units = program.units(micro_batches);
  for (size_t at = 0; at < units.size(); ++at) {
    const ddh_op& op = program.ops[at % program.ops.size()];
    ddh_unit_use use{};
    use.struct_size = sizeof use;
    use.program = program.program;
    use.unit = op.unit;
    use.position = op.position;
    use.micro_batch = static_cast<int32_t>(at / program.ops.size());
    use.phase = op.phase;
    use.flags = op.flags;
    use.next = units.data() + at + 1;
    use.n_next = static_cast<uint32_t>(units.size() - at - 1);
    use_unit(use);
  }
}

uint64_t peak_open_bytes(GatheredParams& params, const UseParams& acquire, const UseParams& release) {
  for (const RunProgram& program : params.layout().programs) {
    run_uses(program, std::min(2U, program.micro_batches), [&](const ddh_unit_use& use) {
      acquire(use, params);
      release(use, params);
    });
    params.close_others();
  }
  return params.peak_open_bytes();
}

void run_train_step(const ModelLayout& layout, const std::function<void(const ddh_unit_use&)>& acquire,
                    const std::function<void(const ddh_unit_use&)>& release) {
  if (layout.programs.empty()) return;
  const RunProgram& program = layout.programs.front();
  run_uses(program, program.micro_batches, [&](const ddh_unit_use& use) {
    acquire(use);
    release(use);
  });
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
