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
  // true: a buffer is summed when it is needed again, so that peers have time to finish theirs. false: it is summed at
  // once, which saves one buffer.
  bool overlap = true;
  // DDH_MEM_* of the segments; the host sums into pinned ones where they lie.
  int32_t memory = DDH_MEM_DEVICE;
};

class GradRing final : public GradStore {
 public:
  GradRing() = default;
  // Numbers only; materialize allocates. `args.group` and `args.rank`: the ranks that share the segments.
  GradRing(const ModelLayout& layout, const ddh_attach_args& args, GradRingOptions options = {});

  // Bytes that materialize takes: this rank's segments, spaces' own buffers, and the ring.
  [[nodiscard]] uint64_t bytes() const override;
  void materialize(const Host& host) override;

  // A buffer for a space: numel fp32 elements to write gradients to, until they are reduced. What the buffer still holds
  // is summed first.
  float* writable(size_t space) override;

  // The gradients of a space are complete. `last`: they are the step's last ones, so that their sum counts in the norm.
  void ready(size_t space, bool last) override;

  // Sums everything that is ready over the ranks. [collective]
  void reduce_all() override;

  // After reduce_all: this rank's segment of the sums, fp32. nullptr: the step had no gradients. Valid until step_done,
  // which begins the next step.
  [[nodiscard]] const float* segment(size_t space) const;
  [[nodiscard]] const float* sum(size_t space) override;
  void step_done() override;

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
  [[nodiscard]] size_t most_written_at_once() const;

  // The oldest of the ring that nobody is writing.
  Held& next_of_ring();

  void reduce(Held& held);

  // Among those who share the segments, then among the replicas. Replica 0 brings what is accumulated into the first of the
  // two, so that the second is ((accumulated + sum of shard group 0) + sum of shard group 1) + ..., on every replica.
  void reduce_in_steps(Held& held, Space& s, const FlatSpace& space, bool adds);
  void sum_over_replicas(const float* send, float* recv, const float* initial, const FlatSpace& space);
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
