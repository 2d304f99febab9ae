// SPDX-License-Identifier: Apache-2.0
//
// Gradients in full on every rank, and their sums.
#include "ddh/sdk/grads/full_grads.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

FullGrads::FullGrads(const ModelLayout& layout, const ddh_attach_args& args, uint32_t to_all)
    : layout_(&layout),
      args_(args),
      to_all_(to_all),
      accumulates_(args.grad_accum_steps > 1 && args.reduce_order == DDH_RANK_FIRST),
      spaces_(layout.spaces.size()) {}

uint64_t FullGrads::bytes() const {
  uint64_t bytes = 0;
  for (const FlatSpace& space : layout_->spaces) {
    if (space.trained_plain()) bytes += space.grad_bytes() + (accumulates_ ? space.grad_segment_bytes(args_.rank) : 0);
  }
  return bytes;
}

SentBytes FullGrads::sent_bytes() const {
  SentBytes sent;
  for (const FlatSpace& space : layout_->spaces) {
    if (space.coded || !space.trained_in(layout_->first_program())) continue;
    sent += reductions_per_step(args_) * layout_->sent_grads(space);
    if (to_all_ != 0) sent += layout_->ranks.to_each(space.grad_segment_bytes(args_.rank));
  }
  return sent;
}

void FullGrads::materialize(const Host& host) {
  for (size_t i = 0; i < spaces_.size(); ++i) {
    const FlatSpace& space = layout_->spaces[i];
    if (!space.trained_plain()) continue;
    spaces_[i].ranges = space.segment_ranges(args_.rank);
    spaces_[i].exchange.emplace(host, args_.group, space.name, space.numel);
    if (accumulates_) {
      spaces_[i].sum =
          Buffer(host, DDH_TAG_GRAD, space.grad_segment_bytes(args_.rank), str("gradient sums of ", space.name));
    }
  }
}

float* FullGrads::writable(size_t space) {
  Space& s = spaces_[space];
  reduce(space);
  if (s.phase != Phase::kWriting) s.exchange->write_begin();
  s.phase = Phase::kWriting;
  return s.exchange->buffer();
}

void FullGrads::ready(size_t space, bool last) {
  spaces_[space].exchange->ready();
  spaces_[space].phase = Phase::kReady;
  spaces_[space].is_last = last;
  if (spaces_[space].exchange->reduces_later()) reduce(space);
}

void FullGrads::reduce_all() {
  for (size_t s = 0; s < spaces_.size(); ++s) reduce(s);
  for (Space& s : spaces_)
    if (s.exchange && s.exchange->reduces_later()) s.exchange->wait();
}

const float* FullGrads::segment(size_t space) const {
  const Space& s = spaces_[space];
  if (s.reductions == 0) return nullptr;
  const uint64_t offset = layout_->spaces[space].cut.segment_offset[static_cast<size_t>(args_.rank)];
  return accumulates_ ? s.sum.f32() : s.exchange->buffer() + offset;
}

const float* FullGrads::all(size_t space) {
  Space& s = spaces_[space];
  if (s.reductions == 0) return nullptr;
  s.exchange->wait();
  return s.exchange->buffer();
}

const float* FullGrads::sum(size_t space) { return to_all_ != 0 ? all(space) : segment(space); }

void FullGrads::step_done() {
  for (Space& s : spaces_) s.reductions = 0;
}

void FullGrads::free(size_t space) {
  spaces_[space].exchange.reset();
  spaces_[space].sum = Buffer();
}

void FullGrads::reduce(size_t space) {
  Space& s = spaces_[space];
  if (s.phase != Phase::kReady) return;
  const uint32_t flags = (s.reductions > 0 ? DDH_REDUCE_ADD : 0) | (s.is_last ? DDH_REDUCE_NORM | to_all_ : 0) |
                         (s.exchange->reduces_later() ? DDH_REDUCE_LATER : 0);
  s.exchange->reduce(layout_->spaces[space], accumulates_ ? s.sum.f32() : nullptr, s.ranges, flags);
  s.phase = Phase::kIdle;
  ++s.reductions;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
