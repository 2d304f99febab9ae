// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/grads/full_grads.hpp: full gradients on every rank, in buffers that peers can read, and their sums over the
// ranks. The sum of a segment stays on its rank, or is written to all ranks (DDH_REDUCE_TO_ALL).
#pragma once

#include <optional>

#include "ddh/sdk/grads/grad_store.hpp"
#include "ddh/sdk/params/window.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class FullGrads final : public GradStore {
 public:
  FullGrads() = default;
  // Only plans; materialize allocates. `to_all`: DDH_REDUCE_TO_ALL or 0, for the last reduction of a step.
  FullGrads(const ModelLayout& layout, const ddh_attach_args& args, uint32_t to_all);

  // Bytes that materialize allocates: a full-size buffer for each trained space, and this rank's segment of the sums if
  // several micro-batches are accumulated.
  [[nodiscard]] uint64_t bytes() const override;
  [[nodiscard]] SentBytes sent_bytes() const override;
  void materialize(const Host& host) override;

  // The buffer of a space: numel fp32 elements for gradients. If it still holds gradients of an earlier micro-batch,
  // they are summed over the ranks first.
  float* writable(size_t space) override;

  // The gradients of a space are complete. `last`: they are the last ones of the step, so their sum counts in the norm.
  void ready(size_t space, bool last) override;

  // Sums everything that is ready over the ranks. [collective]
  void reduce_all() override;

  // After reduce_all: the sums of this rank's segment, or with to_all of the whole space; fp32. nullptr: the step had no
  // gradients. Valid until step_done, which begins the next step.
  [[nodiscard]] const float* segment(size_t space) const;
  [[nodiscard]] const float* all(size_t space);
  [[nodiscard]] const float* sum(size_t space) override;
  [[nodiscard]] bool sums_are_whole() const override { return to_all_ != 0; }
  void step_done() override;
  void free(size_t space) override;

 private:
  // The state of a buffer: empty; gradients are being written; gradients are complete but not summed yet.
  enum class Phase { kIdle, kWriting, kReady };

  struct Space {
    std::optional<Exchange> exchange;
    std::vector<ddh_range> ranges;  // of this rank's segment
    Buffer sum;                     // this rank's segment of the accumulated gradient
    Phase phase = Phase::kIdle;
    bool is_last = false;
    uint32_t reductions = 0;  // in this step
  };

  void reduce(size_t space);

  const ModelLayout* layout_ = nullptr;
  ddh_attach_args args_{};
  uint32_t to_all_ = 0;
  bool accumulates_ = false;
  std::vector<Space> spaces_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
