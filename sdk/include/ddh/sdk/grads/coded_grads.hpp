// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/grads/coded_grads.hpp: gradients that the run's codec compresses on their way between ranks (ddh/kind/codec.h),
// beside a store for all others. Each parameter that the codec may take has a flat space of its own (FlatSpace::coded), and
// its whole gradient stays in one array on each rank until the update, also under strategies that shard gradients.
//
// A rank sums the gradients of its micro-batches. Then all coded parameters of the step go through the rounds together: one
// all_reduce for each round, of the messages of all of them. In a step in which the codec leaves a parameter out, its
// gradient is summed by an all_reduce for each reduction of a step, with the bits of the other store's sum.
#pragma once

#include <memory>

#include "ddh/sdk/grads/grad_store.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// Of each parameter: whether the run's codec takes it in any step. Empty: the run has no codec.
[[nodiscard]] std::vector<bool> coded_params(const Host& host, const ddh_model_desc& model);

class CodedGrads final : public GradStore {
 public:
  // `others`: the store of the spaces that are not coded. `args`: those of the strategy's attach. `rank`: this rank's index
  // among those over which the spaces are cut. `in_norm`: it adds its segments to the norm, as one of their replicas must.
  CodedGrads(const Host& host, const ModelLayout& layout, const ddh_attach_args& args, int32_t rank, bool in_norm,
             std::unique_ptr<GradStore> others);

  [[nodiscard]] uint64_t bytes() const override;
  [[nodiscard]] uint64_t comm_bytes() const override;
  [[nodiscard]] uint64_t pinned_bytes() const override { return others_->pinned_bytes(); }
  // With the codec's most rounds.
  [[nodiscard]] SentBytes sent_bytes() const override;
  [[nodiscard]] uint32_t reduce_calls() const override;
  [[nodiscard]] uint32_t calls_per_reduction(size_t space) const override {
    return others_->calls_per_reduction(space);
  }
  void materialize(const Host& host) override;
  void step_begin(int64_t step) override;
  float* writable(size_t space) override;
  void ready(size_t space, bool last) override;
  bool next_block(size_t space, bool last, ddh_grad_block& out) override {
    return others_->next_block(space, last, out);
  }
  void reduce_all() override;
  [[nodiscard]] const float* sum(size_t space) override;
  [[nodiscard]] bool sums_are_whole() const override { return others_->sums_are_whole(); }
  void step_done() override;
  void free(size_t space) override;

 private:
  struct Space {
    int32_t param = -1;  // -1: not coded
    Buffer grad;         // of a micro-batch
    Buffer micro_sum;  // of all micro-batches, if they are summed one by one; else there is none, and `grad` is the sum
    std::vector<ddh_range> ranges;
    bool is_ready = false;  // `grad` is complete, and not in the sum yet
    bool is_coded = false;  // in this step
    uint32_t added = 0;     // micro-batches in the sum
  };

  [[nodiscard]] bool is_coded(size_t space) const { return spaces_[space].param >= 0; }
  [[nodiscard]] bool adds_micro_batches() const { return reductions_per_step(args_) > 1; }
  [[nodiscard]] float* sum_of(const Space& space) const {
    return adds_micro_batches() ? space.micro_sum.f32() : space.grad.f32();
  }
  // Elements of the messages of a round, with the codec's most rounds. `program`: that it trains; -1: any.
  [[nodiscard]] uint64_t message_numel(uint32_t round, int32_t program) const;
  [[nodiscard]] uint32_t most_rounds() const;
  void add(size_t space);
  void exchange_messages();
  // Sums over all ranks, in their order.
  void all_reduce(const float* send, float* recv, const float* initial, uint64_t numel, const char* label) const;

  const Host& host_;
  const ModelLayout& layout_;
  const ddh_attach_args args_;
  const int32_t rank_;
  const bool in_norm_;
  const std::unique_ptr<GradStore> others_;
  std::vector<Space> spaces_;
  Buffer messages_;
  int64_t step_ = 0;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
