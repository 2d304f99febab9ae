// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/grad_ring.hpp: gradients that exist in full only from their unit's backward to their reduction. A ring of a few
// full-size buffers serves one unit after the other; what stays is this rank's segment of the sums.
//
// Spaces that are written for long have a buffer of their own: tied weights, small parameters of all units; every space,
// when gradients of micro-batches are added up before the ranks' are (DDH_MICRO_FIRST).
#pragma once

#include <deque>

#include "ddh/sdk/grad_store.hpp"
#include "ddh/sdk/window.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// The ranks that hold the same segments.
struct ReplicaGroup {
  ddh_group* group = nullptr;
  Replica place;
};

struct GradRingOptions {
  // The ranks with this one's segments, where more than one group of ranks shares the model.
  ReplicaGroup replicas{};
  // A buffer is summed when it is needed again, so that peers have time to finish theirs; else at once, and there is one
  // buffer less.
  bool overlap = true;
  // DDH_MEM_* of the segments; the host sums into pinned ones where they lie.
  int32_t memory = DDH_MEM_DEVICE;
};

class GradRing final : public GradStore {
 public:
  GradRing() = default;
  // Numbers only; materialize allocates. `args.group` and `args.rank`: the ranks that share the segments.
  GradRing(const ModelLayout& layout, const ddh_attach_args& args, GradRingOptions options = {})
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

  // Segments, buffers of their own, and the ring.
  [[nodiscard]] uint64_t bytes() const override {
    uint64_t bytes = ring_size_ * ring_numel_ * sizeof(float);
    for (size_t s = 0; s < spaces_.size(); ++s) {
      const FlatSpace& space = layout_->spaces[s];
      if (space.trained())
        bytes += space.grad_segment_bytes(args_.rank) + (spaces_[s].has_own_buffer ? space.grad_bytes() : 0);
    }
    return bytes;
  }

  void materialize(const Host& host) override {
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

  // Full-size memory for a space's gradients, kept until reduced. Sums first what the buffer still holds.
  float* writable(size_t space) override {
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

  // The gradients of a space are complete. `last`: of the step, so that their sum counts in the norm.
  void ready(size_t space, bool last) override {
    Held& held = *spaces_[space].buffer;
    held.exchange.ready();
    held.is_ready = true;
    held.is_last = last;
    if (!options_.overlap) reduce(held);
  }

  // Sums all that is ready.
  void reduce_all() override {
    for (Held& held : buffers_) reduce(held);
  }

  // After reduce_all: this rank's segment of the sums, or nullptr where the step had none.
  [[nodiscard]] const float* segment(size_t space) const {
    return spaces_[space].reductions > 0 ? spaces_[space].segment.f32() : nullptr;
  }
  [[nodiscard]] const float* sum(size_t space) override { return segment(space); }
  void step_done() override {
    for (Space& s : spaces_) s.reductions = 0;
  }

 private:
  static constexpr size_t kNobody = SIZE_MAX;

  // A full-size buffer and what it holds.
  struct Held {
    explicit Held(Exchange x) : exchange(std::move(x)) {}
    Exchange exchange;
    size_t space = kNobody;
    bool is_ready = false;  // complete on this rank, not yet summed
    bool is_last = false;
  };
  struct Space {
    bool has_own_buffer = false;
    Held* buffer = nullptr;         // its own, or the one of the ring that it had last
    std::vector<ddh_range> ranges;  // of this rank's segment
    Buffer segment;
    uint32_t reductions = 0;  // in this step
  };

  // The most spaces of the ring whose gradients are written at the same moment: from the backward of their first unit to
  // that of their last.
  [[nodiscard]] size_t most_written_at_once() const {
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

  // The oldest of the ring that nobody is writing.
  Held& next_of_ring() {
    for (;;) {
      Held& held = *ring_[ring_next_++ % ring_.size()];
      if (held.space == kNobody || held.is_ready) return held;
    }
  }

  void reduce(Held& held) {
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

  // Among those who share the segments, then among the replicas. Replica 0 brings what is accumulated into the first of the
  // two, so that the second is ((accumulated + sum of shard group 0) + sum of shard group 1) + ..., on every replica.
  void reduce_in_steps(Held& held, Space& s, const FlatSpace& space, bool adds) {
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
    call(host_->optim->add_gradient, host_->h, s.segment.f32(), s.ranges.data(),
         static_cast<uint32_t>(s.ranges.size()));
  }
  void sum_over_replicas(const float* send, float* recv, const float* initial, const FlatSpace& space) {
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
  // Replicas of one rank each, summed in blocks of several: what is accumulated belongs in front of the first block, not
  // into it.
  [[nodiscard]] bool replicas_share_blocks() const { return args_.world_size == 1 && args_.reduce_block > 1; }

  const Host* host_ = nullptr;
  const ModelLayout* layout_ = nullptr;
  ddh_attach_args args_{};
  GradRingOptions options_;
  std::vector<Space> spaces_;
  uint64_t ring_numel_ = 0;  // the largest space that uses the ring
  size_t ring_size_ = 0;
  std::deque<Held> buffers_;  // deque: elements stay in place
  std::vector<Held*> ring_;
  size_t ring_next_ = 0;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
