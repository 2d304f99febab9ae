// SPDX-License-Identifier: Apache-2.0
//
// The ring of full-size gradient buffers.
#include "ddh/sdk/grads/grad_ring.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

GradRing::GradRing(const ModelLayout& layout, const ddh_attach_args& args, GradRingOptions options)
    : layout_(&layout), args_(args), options_(options), spaces_(layout.spaces.size()) {
  size_t ring_users = 0;
  const bool keeps_micro_sums = args.grad_accum_steps > 1 && args.reduce_order == DDH_MICRO_FIRST;
  for (size_t s = 0; s < spaces_.size(); ++s) {
    const FlatSpace& space = layout.spaces[s];
    if (!space.trained()) continue;
    spaces_[s].has_own_buffer = space.shared || space.persistent || keeps_micro_sums;
    if (spaces_[s].has_own_buffer) continue;
    ring_numel_ = std::max(ring_numel_, space.numel);
    ++ring_users;
  }
  ring_size_ = std::min(ring_users, most_written_at_once() + (options.overlap ? 1 : 0));
}

uint64_t GradRing::bytes() const {
  uint64_t bytes = ring_size_ * ring_numel_ * sizeof(float);
  for (size_t s = 0; s < spaces_.size(); ++s) {
    const FlatSpace& space = layout_->spaces[s];
    if (space.trained())
      bytes += space.grad_segment_bytes(args_.rank) + (spaces_[s].has_own_buffer ? space.grad_bytes() : 0);
  }
  return bytes;
}

uint64_t GradRing::pinned_bytes() const {
  uint64_t bytes = 0;
  for (const FlatSpace& space : layout_->spaces)
    if (space.trained() && options_.memory == DDH_MEM_PINNED) bytes += space.grad_segment_bytes(args_.rank);
  return bytes;
}

void GradRing::materialize(const Host& host) {
  host_ = &host;
  for (size_t s = 0; s < spaces_.size(); ++s) {
    const FlatSpace& space = layout_->spaces[s];
    if (!space.trained()) continue;
    spaces_[s].ranges = space.segment_ranges(args_.rank);
    spaces_[s].segment = Buffer(host, DDH_TAG_GRAD, space.grad_segment_bytes(args_.rank),
                                str("gradient segment of ", space.name), DDH_ALLOC_ZERO, options_.memory);
    if (spaces_[s].has_own_buffer) {
      buffers_.emplace_back(Exchange(host, args_.group, space.name, space.numel));
      spaces_[s].buffer = &buffers_.back();
    }
  }
  for (size_t k = 0; k < ring_size_; ++k) {
    buffers_.emplace_back(Exchange(host, args_.group, str("gradient ring ", k), ring_numel_));
    ring_.push_back(&buffers_.back());
  }
}

float* GradRing::writable(size_t space) {
  Space& s = spaces_[space];
  if (!s.has_own_buffer && (s.buffer == nullptr || s.buffer->space != space)) s.buffer = &next_of_ring();
  Held& held = *s.buffer;
  reduce(held);
  if (held.space != space) {
    held.exchange.write_begin();
    zero_padding(*host_, layout_->spaces[space], held.exchange.buffer());
    held.space = space;
  }
  return held.exchange.buffer();
}

void GradRing::ready(size_t space, bool last) {
  Held& held = *spaces_[space].buffer;
  held.exchange.ready();
  held.is_ready = true;
  held.is_last = last;
  if (!options_.overlap) reduce(held);
}

void GradRing::reduce_all() {
  for (Held& held : buffers_) reduce(held);
}

const float* GradRing::segment(size_t space) const {
  return spaces_[space].reductions > 0 ? spaces_[space].segment.f32() : nullptr;
}

const float* GradRing::sum(size_t space) { return segment(space); }

void GradRing::step_done() {
  for (Space& s : spaces_) s.reductions = 0;
}

void GradRing::free(size_t space) {
  Space& s = spaces_[space];
  s.segment = Buffer();
  if (!s.has_own_buffer) return;
  buffers_.remove_if([&](const Held& held) { return &held == s.buffer; });
  s.buffer = nullptr;
}

size_t GradRing::most_written_at_once() const {
  size_t most = 0;
  for (const RunProgram& program : layout_->programs) {
    std::vector<size_t> written(program.ops.size(), 0);  // per op
    for (size_t s = 0; s < spaces_.size(); ++s) {
      if (spaces_[s].has_own_buffer || !layout_->spaces[s].trained_in(program.program)) continue;
      const auto writes_it = [&](const ddh_op& op) {
        const std::vector<size_t>& uses = layout_->unit_uses[static_cast<size_t>(op.unit)];
        return gives_gradients(op.phase, op.flags) && std::find(uses.begin(), uses.end(), s) != uses.end();
      };
      const auto first = std::find_if(program.ops.begin(), program.ops.end(), writes_it);
      const auto last = std::find_if(program.ops.rbegin(), program.ops.rend(), writes_it).base();
      for (auto op = first; op < last; ++op) ++written[static_cast<size_t>(op - program.ops.begin())];
    }
    if (!written.empty()) most = std::max(most, *std::max_element(written.begin(), written.end()));
  }
  return most;
}

GradRing::Held& GradRing::next_of_ring() {
  for (;;) {
    Held& held = *ring_[ring_next_++ % ring_.size()];
    if (held.space == kNobody || held.is_ready) return held;
  }
}

void GradRing::reduce(Held& held) {
  if (!held.is_ready) return;
  Space& s = spaces_[held.space];
  const FlatSpace& space = layout_->spaces[held.space];
  const uint32_t add = s.reductions > 0 ? DDH_REDUCE_ADD : 0, norm = held.is_last ? DDH_REDUCE_NORM : 0;
  if (options_.replicas.place.count == 1)
    held.exchange.reduce(space, s.segment.f32(), s.ranges, add | norm);
  else
    reduce_in_steps(held, s, space, add != 0);
  ++s.reductions;
  held.space = kNobody;
  held.is_ready = false;
}

void GradRing::reduce_in_steps(Held& held, Space& s, const FlatSpace& space, bool adds) {
  const bool is_first = options_.replicas.place.index == 0;
  if (adds && replicas_share_blocks()) {
    held.exchange.reduce(space, nullptr, s.ranges, 0);
    const float* const mine = held.exchange.buffer() + space.cut.segment_offset[static_cast<size_t>(args_.rank)];
    sum_over_replicas(mine, s.segment.f32(), s.segment.f32(), space);
  } else {
    held.exchange.reduce(space, s.segment.f32(), s.ranges, adds && is_first ? DDH_REDUCE_ADD : 0);
    sum_over_replicas(s.segment.f32(), s.segment.f32(), nullptr, space);
  }
  if (!held.is_last || !is_first) return;  // each element counts once in the norm
  call(host_->optim->add_gradient, host_->h, s.segment.f32(), s.ranges.data(), static_cast<uint32_t>(s.ranges.size()));
}

void GradRing::sum_over_replicas(const float* send, float* recv, const float* initial, const FlatSpace& space) {
  ddh_coll coll{};
  coll.struct_size = sizeof coll;
  coll.dtype = DDH_F32;
  coll.op = DDH_SUM;
  coll.send = send;
  coll.recv = recv;
  coll.initial = initial;
  coll.count = space.segment_numel(args_.rank);
  coll.group = options_.replicas.group;
  coll.label = "sum over replicas";
  call(host_->comm->all_reduce, host_->h, &coll);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
