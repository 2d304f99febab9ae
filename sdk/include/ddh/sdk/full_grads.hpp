// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/full_grads.hpp: gradients that exist in full on every rank, in buffers that peers can read, and their sums over
// the ranks. The sum of a segment stays on its rank, or lands with everyone (DDH_REDUCE_TO_ALL).
#pragma once

#include <optional>

#include "ddh/sdk/grad_store.hpp"
#include "ddh/sdk/window.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class FullGrads final : public GradStore {
 public:
  FullGrads() = default;
  // Numbers only; materialize allocates. `to_all`: DDH_REDUCE_TO_ALL or 0, for the last reduction of a step.
  FullGrads(const ModelLayout& layout, const ddh_attach_args& args, uint32_t to_all)
      : layout_(&layout),
        args_(args),
        to_all_(to_all),
        accumulates_(args.grad_accum_steps > 1 && args.reduce_order == DDH_RANK_FIRST),
        spaces_(layout.spaces.size()) {}

  // The buffers, and where sums of micro-batches are added up the segments of those.
  [[nodiscard]] uint64_t bytes() const override {
    uint64_t bytes = 0;
    for (const FlatSpace& space : layout_->spaces) {
      if (space.trained()) bytes += space.grad_bytes() + (accumulates_ ? space.grad_segment_bytes(args_.rank) : 0);
    }
    return bytes;
  }

  void materialize(const Host& host) override {
    for (size_t i = 0; i < spaces_.size(); ++i) {
      const FlatSpace& space = layout_->spaces[i];
      if (!space.trained()) continue;
      spaces_[i].ranges = space.segment_ranges(args_.rank);
      spaces_[i].exchange.emplace(host, args_.group, space.name, space.numel);
      if (accumulates_) {
        spaces_[i].sum =
            Buffer(host, DDH_TAG_GRAD, space.grad_segment_bytes(args_.rank), str("gradient sums of ", space.name));
      }
    }
  }

  // Memory for a space's gradients. Sums first what an earlier micro-batch left there.
  float* writable(size_t space) override {
    Space& s = spaces_[space];
    reduce(space);
    if (s.phase != Phase::kWriting) s.exchange->write_begin();
    s.phase = Phase::kWriting;
    return s.exchange->buffer();
  }

  // The gradients of a space are complete. `last`: of the step, so that their sum counts in the norm.
  void ready(size_t space, bool last) override {
    spaces_[space].exchange->ready();
    spaces_[space].phase = Phase::kReady;
    spaces_[space].is_last = last;
  }

  void reduce_all() override {
    for (size_t s = 0; s < spaces_.size(); ++s) reduce(s);
  }

  // After reduce_all, nullptr where the step had no gradients: the sums of this rank's segment; with to_all, all sums.
  [[nodiscard]] const float* segment(size_t space) const {
    const Space& s = spaces_[space];
    if (s.reductions == 0) return nullptr;
    const uint64_t offset = layout_->spaces[space].cut.segment_offset[static_cast<size_t>(args_.rank)];
    return accumulates_ ? s.sum.f32() : s.exchange->buffer() + offset;
  }
  [[nodiscard]] const float* all(size_t space) {
    Space& s = spaces_[space];
    if (s.reductions == 0) return nullptr;
    s.exchange->wait();
    return s.exchange->buffer();
  }
  [[nodiscard]] const float* sum(size_t space) override { return to_all_ != 0 ? all(space) : segment(space); }
  void step_done() override {
    for (Space& s : spaces_) s.reductions = 0;
  }

 private:
  // What a buffer holds: nothing of use; gradients being written; complete ones, not yet summed.
  enum class Phase { kIdle, kWriting, kReady };

  struct Space {
    std::optional<Exchange> exchange;
    std::vector<ddh_range> ranges;  // of this rank's segment
    Buffer sum;                     // of the micro-batches so far, this rank's segment
    Phase phase = Phase::kIdle;
    bool is_last = false;
    uint32_t reductions = 0;  // in this step
  };

  void reduce(size_t space) {
    Space& s = spaces_[space];
    if (s.phase != Phase::kReady) return;
    const uint32_t flags = (s.reductions > 0 ? DDH_REDUCE_ADD : 0) | (s.is_last ? DDH_REDUCE_NORM | to_all_ : 0);
    s.exchange->reduce(layout_->spaces[space], accumulates_ ? s.sum.f32() : nullptr, s.ranges, flags);
    s.phase = Phase::kIdle;
    ++s.reductions;
  }

  const ModelLayout* layout_ = nullptr;
  ddh_attach_args args_{};
  uint32_t to_all_ = 0;
  bool accumulates_ = false;
  std::vector<Space> spaces_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
