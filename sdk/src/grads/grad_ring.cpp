// SPDX-License-Identifier: Apache-2.0
//
// The ring of full-size gradient buffers.
#include "ddh/sdk/grads/grad_ring.hpp"

#include <algorithm>

#include "ddh/sdk/collective.hpp"
#include "ddh/sdk/grads/ring_choice.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {
namespace {
// The largest space in blocks is divided into 8 batches, or fewer that are not small: all ranks wait for one another in each.
constexpr uint64_t kBatchesOfLargest = 8, kLeastBatchBytes = uint64_t{1} << 20;
constexpr uint64_t kOwnRestPart = 16;  // a rest of at most a sixteenth of a batch has a buffer of its own
}  // namespace

GradRing::GradRing(const ModelLayout& layout, const ddh_attach_args& args, GradRingOptions options)
    : layout_(&layout), args_(args), options_(options), spaces_(layout.spaces.size()) {
  choose_buffers();
}

void GradRing::choose_buffers() {
  const bool keeps_micro_sums = args_.grad_accum_steps > 1 && args_.reduce_order == DDH_MICRO_FIRST;
  RingBlocks blocks;
  const uint64_t batch_numel = blocks.numel = make_batches();
  std::vector<size_t> candidates;  // for the ring, the largest first
  for (size_t s = 0; s < spaces_.size(); ++s) {
    const FlatSpace& space = layout_->spaces[s];
    if (!space.trained_plain()) continue;
    if (has_blocks(s)) {
      // In the ring, the rest would wait until the last block.
      const uint64_t rest = spaces_[s].rest.numel;
      spaces_[s].has_own_buffer = rest > 0 && (space.shared || rest <= batch_numel / kOwnRestPart);
      blocks.spaces.push_back(s);
      if (rest == 0 || spaces_[s].has_own_buffer) continue;
      blocks.spaces.push_back(s);
      blocks.numel = std::max(blocks.numel, rest);
      continue;
    }
    spaces_[s].has_own_buffer = space.shared || space.persistent || keeps_micro_sums;
    if (!spaces_[s].has_own_buffer) candidates.push_back(s);
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](size_t a, size_t b) { return layout_->spaces[a].numel > layout_->spaces[b].numel; });
  const RingChoice choice = choose_ring(*layout_, candidates, blocks, args_, sums_in_place(), options_);
  for (size_t i = 0; i < choice.n_own; ++i) spaces_[candidates[i]].has_own_buffer = true;
  ring_numel_ = choice.ring_numel;
  ring_size_ = choice.ring_size;
  bytes_for_overlap_ = choice.bytes_for_overlap;
}

uint64_t GradRing::make_batches() {
  uint64_t all = 0, largest = 0;
  for (const FlatSpace& space : layout_->spaces) {
    if (!space.trained_plain() || (space.blocks_numel == 0 && (space.shared || space.persistent))) continue;
    if (space.blocks_numel > 0) require_room_for_block(space);
    largest = std::max(largest, space.blocks_numel);
    all += space.grad_bytes();
  }
  const uint64_t limit = grad_buffer_limit(all, args_, options_.buffer_bytes) / sizeof(float);
  uint64_t most = 0;
  for (size_t s = 0; s < spaces_.size(); ++s) {
    const FlatSpace& space = layout_->spaces[s];
    if (!has_blocks(s)) continue;
    // A block for each rank and those that two ranks share, or more if that is still little of the space.
    const uint64_t enough = (3 * static_cast<uint64_t>(args_.world_size) + 1) / 2 * largest_block(*args_.model, space);
    const uint64_t wanted = std::max({enough, largest / kBatchesOfLargest, kLeastBatchBytes / sizeof(float)});
    const uint64_t numel = std::min(limit / (options_.overlap ? 2 : 1), wanted);
    spaces_[s].batches = block_batches(*args_.model, space, args_.rank, numel);
    spaces_[s].rest = rest_of(space, args_.rank);
    for (const BlockBatch& batch : spaces_[s].batches) most = std::max(most, batch.numel);
  }
  return most;
}

void GradRing::require_room_for_block(const FlatSpace& space) const {
  const uint64_t bytes = largest_block(*args_.model, space) * sizeof(float);
  if (options_.buffer_bytes == 0 || options_.buffer_bytes >= bytes) return;
  fail(DDH_INVALID_ARGUMENT, "strategy.grad_buffer_bytes=", options_.buffer_bytes,
       " is less than a block of the gradients of '", space.name, "', which has ", bytes,
       " bytes; give at least that, or leave it out");
}

uint64_t GradRing::bytes() const {
  uint64_t bytes = ring_size_ * ring_numel_ * sizeof(float);
  for (size_t s = 0; s < spaces_.size(); ++s) {
    const FlatSpace& space = layout_->spaces[s];
    if (!space.trained_plain()) continue;
    if (has_segment(s)) bytes += space.grad_segment_bytes(args_.rank);
    if (spaces_[s].has_own_buffer) bytes += (space.numel - space.blocks_numel) * sizeof(float);
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
  for (size_t s = 0; s < spaces_.size(); ++s) {
    const FlatSpace& space = layout_->spaces[s];
    if (space.coded || !space.trained_in(layout_->first_program())) continue;
    SentBytes once = layout_->sent_grads(space);
    const auto over_replicas = [&](uint64_t numel) {
      once += options_.replicas.ranks.all_reduce(numel, sizeof(float));
    };
    const auto me = static_cast<size_t>(args_.rank);
    for (const BlockBatch& batch : spaces_[s].batches) over_replicas(batch.segment_numel[me]);
    over_replicas(has_blocks(s) ? spaces_[s].rest.segment_numel[me] : space.segment_numel(args_.rank));
    sent += reductions_per_step(args_) * once;
  }
  return sent;
}

uint32_t GradRing::calls_per_reduction(size_t space) const {
  const Space& s = spaces_[space];
  return static_cast<uint32_t>(s.batches.size()) + (!has_blocks(space) || s.rest.numel > 0 ? 1 : 0);
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
      buffers_.emplace_back(Exchange(host, args_.group, space.name, space.numel - space.blocks_numel));
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
  const BlockBatch* const part = written_part(space);
  const auto holds_it = [&](const Held& held) { return held.space == space && held.batch == part; };
  if (!s.has_own_buffer && (s.buffer == nullptr || !holds_it(*s.buffer))) s.buffer = &next_of_ring();
  Held& held = *s.buffer;
  reduce(held);
  if (!holds_it(held)) {
    held.exchange.write_begin();
    zero_padding(*host_, layout_->spaces[space], held.exchange.buffer());
    held.space = space;
    held.batch = part;
  }
  return held.exchange.buffer();
}

void GradRing::ready(size_t space, bool last) {
  Space& s = spaces_[space];
  if (!has_blocks(space) || s.rest.numel > 0) complete(*s.buffer, last);
  if (!has_blocks(space)) return;
  s.batch = 0;
  ++s.reductions;
}

void GradRing::complete(Held& held, bool last) {
  held.exchange.ready();
  held.is_ready = true;
  held.is_last = last;
  held.adds = spaces_[held.space].reductions > 0;
  if (!options_.overlap || reduces_later(held)) reduce(held);
}

bool GradRing::next_block(size_t space, bool last, ddh_grad_block& out) {
  Space& s = spaces_[space];
  if (s.block > 0 && s.block == s.batches[s.batch].blocks.size()) {
    complete(*s.block_buffer, last);
    ++s.batch;
    s.block = 0;
  }
  if (s.batch == s.batches.size()) return false;
  if (s.block == 0) begin_batch(space);
  const BlockBatch::Block& block = s.batches[s.batch].blocks[s.block++];
  float* const grad = s.block_buffer->exchange.buffer() + block.at;
  out = {sizeof out, block.param, block.offset, block.numel, grad, DDH_GRAD_WRITE, 0};
  return true;
}

void GradRing::begin_batch(size_t space) {
  Space& s = spaces_[space];
  const BlockBatch* const batch = &s.batches[s.batch];
  for (Held* const held : ring_)
    if (held->batch == batch) reduce(*held);  // of the micro-batch before
  s.block_buffer = &next_of_ring();
  Held& held = *s.block_buffer;
  reduce(held);
  held.exchange.write_begin();
  held.space = space;
  held.batch = batch;
  for (const BlockBatch::Block& block : batch->blocks) {
    float* const padding = held.exchange.buffer() + block.at + block.numel;
    if (block.padded > block.numel)
      call(host_->flatops->fill, host_->h, padding, DDH_F32, block.padded - block.numel, 0.0, nullptr);
  }
}

void GradRing::reduce_all() {
  for (Held& held : buffers_) reduce(held);
  for (Held& held : buffers_)
    if (held.exchange.reduces_later()) held.exchange.wait();
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
  for (size_t tried = 0; tried < ring_.size(); ++tried) {
    Held& held = *ring_[ring_next_++ % ring_.size()];
    if (held.space == kNobody || held.is_ready) return held;
  }
  fail(DDH_INTERNAL, "all ", ring_.size(),
       " gradient buffers of the ring are being written, because more units at a time ",
       "have views with gradients than were planned; release each unit before the next backward");
}

// Sums over replicas need the sum at once.
bool GradRing::reduces_later(const Held& held) const {
  return options_.overlap && held.exchange.reduces_later() && options_.replicas.place().count == 1;
}

void GradRing::reduce(Held& held) {
  if (!held.is_ready) return;
  Space& s = spaces_[held.space];
  const FlatSpace& space = layout_->spaces[held.space];
  if (held.batch != nullptr) return reduce_batch(held);
  const uint32_t add = s.reductions > 0 ? DDH_REDUCE_ADD : 0, norm = held.is_last ? DDH_REDUCE_NORM : 0;
  const uint32_t later = reduces_later(held) ? DDH_REDUCE_LATER : 0;
  if (options_.replicas.place().count == 1)
    held.exchange.reduce(space, has_segment(held.space) ? s.segment.f32() : nullptr, s.ranges, add | norm | later);
  else
    reduce_in_steps(held, s, space, add != 0);
  ++s.reductions;
  held.space = kNobody;
  held.is_ready = false;
}

void GradRing::reduce_batch(Held& held) {
  const BlockBatch& batch = *held.batch;
  const Replica replica = options_.replicas.place();
  float* const sum = spaces_[held.space].segment.f32() + batch.segment_offset;
  const uint32_t add = held.adds && replica.index == 0 ? DDH_REDUCE_ADD : 0;
  const uint32_t norm = held.is_last && replica.count == 1 ? DDH_REDUCE_NORM : 0;
  held.exchange.reduce(batch.segment_numel, sum, batch.ranges,
                       add | norm | (reduces_later(held) ? DDH_REDUCE_LATER : 0));
  if (replica.count > 1) {
    sum_over_replicas(sum, sum, nullptr, batch.segment_numel[static_cast<size_t>(args_.rank)]);
    if (held.is_last) count_in_norm(sum, batch.ranges);
  }
  held.space = kNobody;
  held.batch = nullptr;
  held.is_ready = false;
}

void GradRing::reduce_in_steps(Held& held, Space& s, const FlatSpace& space, bool adds) {
  const bool is_first = options_.replicas.place().index == 0;
  float* const sum = sum_of(held.space);
  if ((adds && replicas_share_blocks()) || !has_segment(held.space)) {
    held.exchange.reduce(space, nullptr, s.ranges, 0);
    const float* const mine = held.exchange.buffer() + space.cut.segment_offset[static_cast<size_t>(args_.rank)];
    sum_over_replicas(mine, sum, adds ? sum : nullptr, space.segment_numel(args_.rank));
  } else {
    held.exchange.reduce(space, sum, s.ranges, adds && is_first ? DDH_REDUCE_ADD : 0);
    sum_over_replicas(sum, sum, nullptr, space.segment_numel(args_.rank));
  }
  if (held.is_last) count_in_norm(sum, s.ranges);
}

// Each element counts once.
void GradRing::count_in_norm(const float* sum, const std::vector<ddh_range>& ranges) {
  if (options_.replicas.place().index > 0) return;
  call(host_->optim->add_gradient, host_->h, sum, ranges.data(), static_cast<uint32_t>(ranges.size()));
}

void GradRing::sum_over_replicas(const float* send, float* recv, const float* initial, uint64_t numel) {
  const ReplicaGroup& replicas = options_.replicas;
  sum_to_all(*host_, replicas.group, send, recv, initial, numel, "sum over replicas");
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
