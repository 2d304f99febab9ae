// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/grads/grad_ring.hpp: full gradients that exist only from their unit's backward to their reduction. The units
// use a ring of a few full-size buffers in turn. Only this rank's segment of the sums stays.
//
// Spaces that several units write have their own buffer: tied weights, small parameters of all units. With
// accumulation in DDH_MICRO_FIRST order every space has its own buffer. So have spaces that are so large that the ring
// would take more than it saves. If a space is reduced once in a step, the sum stays in its own buffer, and it has no
// other segment. So by default all ranks together take at most the memory of FullGrads; segments in pinned memory come on
// top.
//
// Gradients that come in blocks (FlatSpace::blocks_numel) are never whole: a batch of blocks takes a buffer of the ring, and
// is summed into the segments as a space is (ddh/sdk/grads/block_batches.hpp). The rest of such a space, such as biases, has a
// buffer of its own if it is small, and else one of the ring.
#pragma once

#include <list>

#include "ddh/sdk/grads/block_batches.hpp"
#include "ddh/sdk/grads/grad_store.hpp"
#include "ddh/sdk/params/window.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// The ranks that hold the same segments.
struct ReplicaGroup {
  ddh_group* group = nullptr;
  GroupRanks ranks;
  [[nodiscard]] Replica place() const { return {static_cast<int32_t>(ranks.me()), static_cast<int32_t>(ranks.size())}; }
};

struct GradRingOptions {
  // The ranks that hold the same segments as this one, if several shard groups hold the model.
  ReplicaGroup replicas{};
  // true: a buffer is summed when it is needed again, so peers have time to finish theirs, or meanwhile where the host does
  // that (DDH_COMM_LATER). false: it is summed at once, which saves one buffer.
  bool overlap = true;
  // The ring gets the buffer for `overlap` if it takes at most this many bytes with it. 0: grad_buffer_limit's default.
  uint64_t buffer_bytes = 0;
  // DDH_MEM_* of the segments. The host sums directly into pinned memory.
  int32_t memory = DDH_MEM_DEVICE;
};

class GradRing final : public GradStore {
 public:
  GradRing() = default;
  // Only plans; materialize allocates. `args.group` and `args.rank`: the ranks among which the model is sharded.
  GradRing(const ModelLayout& layout, const ddh_attach_args& args, GradRingOptions options = {});

  // Bytes that materialize allocates: this rank's segments, spaces' own buffers, and the ring.
  [[nodiscard]] uint64_t bytes() const override;
  [[nodiscard]] uint64_t pinned_bytes() const override;
  [[nodiscard]] SentBytes sent_bytes() const override;
  [[nodiscard]] uint32_t calls_per_reduction(size_t space) const override;
  void materialize(const Host& host) override;

  // A buffer for a space: numel fp32 elements for gradients until they are reduced. Gradients that the buffer still
  // holds are summed first.
  float* writable(size_t space) override;

  // The gradients of a space are complete. `last`: they are the last ones of the step, so their sum counts in the norm.
  void ready(size_t space, bool last) override;
  bool next_block(size_t space, bool last, ddh_grad_block& out) override;

  // Sums everything that is ready over the ranks. [collective]
  void reduce_all() override;

  // After reduce_all: this rank's segment of the sums, fp32. nullptr: the step had no gradients. Valid until step_done,
  // which begins the next step.
  [[nodiscard]] const float* segment(size_t space) const;
  [[nodiscard]] const float* sum(size_t space) override;
  void step_done() override;
  // This rank's segment of the sums, and the space's own buffer; the ring stays.
  void free(size_t space) override;

 private:
  static constexpr size_t kNobody = SIZE_MAX;

  // A full-size buffer and what it holds.
  struct Held {
    explicit Held(Exchange x) : exchange(std::move(x)) {}
    Exchange exchange;
    size_t space = kNobody;
    bool is_ready = false;  // complete on this rank, not yet summed
    bool is_last = false;
    const BlockBatch* batch = nullptr;  // of a space with blocks: a batch of them, or the rest
    bool adds = false;                  // to the sum of earlier micro-batches
  };
  struct Space {
    bool has_own_buffer = false;
    Held* buffer = nullptr;         // its own buffer, or its last one in the ring
    std::vector<ddh_range> ranges;  // of this rank's segment
    Buffer segment;                 // nothing if the sum stays in its own buffer
    uint32_t reductions = 0;        // in this step
    // Of a space with blocks.
    std::vector<BlockBatch> batches;
    BlockBatch rest;
    Held* block_buffer = nullptr;  // of the batch that is being written
    size_t batch = 0, block = 0;   // the next one in this micro-batch
  };

  // Decides which spaces have their own buffers, and the size of the ring. Equal on all ranks.
  void choose_buffers();
  // Whether a space with its own buffer needs no segment beside it.
  [[nodiscard]] bool sums_in_place() const {
    return options_.memory == DDH_MEM_DEVICE && reductions_per_step(args_) == 1;
  }
  [[nodiscard]] bool has_segment(size_t space) const {
    return !spaces_[space].has_own_buffer || !sums_in_place() || has_blocks(space);
  }
  [[nodiscard]] bool has_blocks(size_t space) const { return layout_->spaces[space].blocks_numel > 0; }
  // What `writable` gives: nullptr: the whole space.
  [[nodiscard]] const BlockBatch* written_part(size_t space) const {
    return has_blocks(space) ? &spaces_[space].rest : nullptr;
  }
  // This rank's segment of the sums.
  [[nodiscard]] float* sum_of(size_t space) const;

  // Divides the gradients that come in blocks. Returns the elements of the largest batch.
  uint64_t make_batches();
  // Error: the option grad_buffer_bytes is less than a block.
  void require_room_for_block(const FlatSpace& space) const;

  // The oldest buffer of the ring that is not being written.
  Held& next_of_ring();
  void begin_batch(size_t space);
  // The gradients in a buffer are complete on this rank.
  void complete(Held& held, bool last);

  void reduce(Held& held);
  void reduce_batch(Held& held);
  [[nodiscard]] bool reduces_later(const Held& held) const;

  // Reduces within the shard group, then over the replicas. Replica 0 adds the accumulated gradient in the first
  // reduction. So the second gives ((accumulated + sum of shard group 0) + sum of shard group 1) + ... on every
  // replica.
  void reduce_in_steps(Held& held, Space& s, const FlatSpace& space, bool adds);
  void sum_over_replicas(const float* send, float* recv, const float* initial, uint64_t numel);
  void count_in_norm(const float* sum, const std::vector<ddh_range>& ranges);
  // For shard groups of one rank, summed in blocks of several ranks: the sum must start from the accumulated gradient,
  // which is not part of the first block.
  [[nodiscard]] bool replicas_share_blocks() const { return args_.world_size == 1 && args_.reduce_block > 1; }

  const Host* host_ = nullptr;
  const ModelLayout* layout_ = nullptr;
  ddh_attach_args args_{};
  GradRingOptions options_;
  std::vector<Space> spaces_;
  uint64_t ring_numel_ = 0;  // of a buffer
  size_t ring_size_ = 0;
  uint64_t bytes_for_overlap_ = 0;  // what the ring would need; 0: it has the buffer for overlap
  std::list<Held> buffers_;         // list: elements stay in place
  std::vector<Held*> ring_;
  size_t ring_next_ = 0;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
