// SPDX-License-Identifier: Apache-2.0
//
// The ring of full-size gradient buffers.
#include "ddh/sdk/grads/grad_ring.hpp"

#include "ddh/sdk/grads/ring_choice.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

GradRing::GradRing(const ModelLayout& layout, const ddh_attach_args& args, GradRingOptions options)
    : layout_(&layout), args_(args), options_(options), spaces_(layout.spaces.size()) {
  choose_buffers();
}

void GradRing::choose_buffers() {
  const bool keeps_micro_sums = args_.grad_accum_steps > 1 && args_.reduce_order == DDH_MICRO_FIRST;
  std::vector<size_t> candidates;  // for the ring, the largest first
  for (size_t s = 0; s < spaces_.size(); ++s) {
    const FlatSpace& space = layout_->spaces[s];
    spaces_[s].has_own_buffer = space.trained_plain() && (space.shared || space.persistent || keeps_micro_sums);
    if (space.trained_plain() && !spaces_[s].has_own_buffer) candidates.push_back(s);
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](size_t a, size_t b) { return layout_->spaces[a].numel > layout_->spaces[b].numel; });
  const RingChoice choice = choose_ring(*layout_, candidates, args_, sums_in_place(), options_);
  for (size_t i = 0; i < choice.n_own; ++i) spaces_[candidates[i]].has_own_buffer = true;
  ring_numel_ = choice.n_own < candidates.size() ? layout_->spaces[candidates[choice.n_own]].numel : 0;
  ring_size_ = choice.ring_size;
  bytes_for_overlap_ = choice.bytes_for_overlap;
}

uint64_t GradRing::bytes() const {
  uint64_t bytes = ring_size_ * ring_numel_ * sizeof(float);
  for (size_t s = 0; s < spaces_.size(); ++s) {
    const FlatSpace& space = layout_->spaces[s];
    if (!space.trained_plain()) continue;
    if (has_segment(s)) bytes += space.grad_segment_bytes(args_.rank);
    if (spaces_[s].has_own_buffer) bytes += space.grad_bytes();
  }
  return bytes;
}

uint64_t GradRing::pinned_bytes() const {
  uint64_t bytes = 0;
  for (const FlatSpace& space : layout_->spaces)
    if (space.trained_plain() && options_.memory == DDH_MEM_PINNED) bytes += space.grad_segment_bytes(args_.rank);
  return bytes;
}

SentBytes GradRing::sent_bytes() const {
  SentBytes sent;
  for (const FlatSpace& space : layout_->spaces) {
    if (space.coded || !space.trained_in(layout_->first_program())) continue;
    SentBytes once = layout_->sent_grads(space);
    once += options_.replicas.ranks.all_reduce(space.segment_numel(args_.rank), sizeof(float));
    sent += reductions_per_step(args_) * once;
  }
  return sent;
}

void GradRing::materialize(const Host& host) {
  host_ = &host;
  if (bytes_for_overlap_ > 0 && args_.rank == 0 && options_.replicas.place().index == 0)
    host.log(DDH_LOG_INFO, "the gradients of a unit are reduced before the backward of the next, which saves memory; ",
             "strategy.grad_buffer_bytes=", bytes_for_overlap_, " lets them overlap");
  for (size_t s = 0; s < spaces_.size(); ++s) {
    const FlatSpace& space = layout_->spaces[s];
    if (!space.trained_plain()) continue;
    spaces_[s].ranges = space.segment_ranges(args_.rank);
    if (has_segment(s))
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

const float* GradRing::segment(size_t space) const { return spaces_[space].reductions > 0 ? sum_of(space) : nullptr; }

float* GradRing::sum_of(size_t space) const {
  const Space& s = spaces_[space];
  if (has_segment(space)) return s.segment.f32();
  return s.buffer->exchange.buffer() + layout_->spaces[space].cut.segment_offset[static_cast<size_t>(args_.rank)];
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
  if (options_.replicas.place().count == 1)
    held.exchange.reduce(space, has_segment(held.space) ? s.segment.f32() : nullptr, s.ranges, add | norm);
  else
    reduce_in_steps(held, s, space, add != 0);
  ++s.reductions;
  held.space = kNobody;
  held.is_ready = false;
}

void GradRing::reduce_in_steps(Held& held, Space& s, const FlatSpace& space, bool adds) {
  const bool is_first = options_.replicas.place().index == 0;
  float* const sum = sum_of(held.space);
  if ((adds && replicas_share_blocks()) || !has_segment(held.space)) {
    held.exchange.reduce(space, nullptr, s.ranges, 0);
    const float* const mine = held.exchange.buffer() + space.cut.segment_offset[static_cast<size_t>(args_.rank)];
    sum_over_replicas(mine, sum, adds ? sum : nullptr, space);
  } else {
    held.exchange.reduce(space, sum, s.ranges, adds && is_first ? DDH_REDUCE_ADD : 0);
    sum_over_replicas(sum, sum, nullptr, space);
  }
  if (!held.is_last || !is_first) return;  // each element counts once in the norm
  call(host_->optim->add_gradient, host_->h, sum, s.ranges.data(), static_cast<uint32_t>(s.ranges.size()));
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
