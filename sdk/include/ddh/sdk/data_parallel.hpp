// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/data_parallel.hpp: the base of strategies in which every rank computes whole units on its own samples.
// Strategies differ in what a rank keeps of parameters, gradients and optimizer state. A derived class defines only
// this:
//
//   parameters()             ReplicatedParams, PublishedParams, PrefetchedParams (ddh/sdk/param_store.hpp)
//   gradients()              FullGrads, GradRing (ddh/sdk/full_grads.hpp, ddh/sdk/grad_ring.hpp)
//   optimizer_state(space)   whole(space), segment(space)
//
// The base does the rest. A unit's parameters are opened before its forward and its backward and closed afterwards; its
// gradients are handed over after its last backward. Then step():
//
//   reduce      sum the gradients of all ranks
//   decide      norm and clip factor of the whole gradient; whether the step is skipped
//   prepare     what the optimizer needs of whole parameters, such as their norms
//   sum_norms   these norms, over all ranks
//   update      master, optimizer state and values of what this rank updates; the values are published
//
// Terms of the strategies' own headers: N ranks, P elements of parameters (each parameter padded to 64), bytes in fp32 with
// AdamW. R: reductions of a gradient in a step: one for each micro-batch with train.reduce_order=rank_first, 1 with
// micro_first. In bf16 and fp16 the values of parameters take half, and the optimizer state includes a master of 4
// bytes an element. Tied parameters, and units that occur twice in a pass, have their own flat space and bucket.
#pragma once

#include <memory>
#include <vector>

#include "ddh/sdk/full_grads.hpp"
#include "ddh/sdk/grad_ring.hpp"
#include "ddh/sdk/grad_store.hpp"
#include "ddh/sdk/optim_state.hpp"
#include "ddh/sdk/options.hpp"
#include "ddh/sdk/param_store.hpp"
#include "ddh/sdk/strategy.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// The elements of a flat space that a rank updates and whose optimizer state it keeps.
struct OptimPart {
  uint64_t offset, numel;
  Replica replica;                  // among the ranks that keep the same part
  int32_t memory = DDH_MEM_DEVICE;  // DDH_MEM_* of state and values
};

class DataParallel : public Strategy {
 public:
  using Strategy::Strategy;

  // The services that the base and its stores use, for DDH_CXX_PLUGIN.
  static constexpr const char* kNeeds[] = {DDH_ALLOC_IFACE, DDH_CONFIG_IFACE, DDH_FLATOPS_IFACE, DDH_WINDOW_IFACE,
                                           DDH_OPTIM_IFACE, DDH_PARAMS_IFACE, DDH_STREAM_IFACE,  nullptr};
  // The same, for strategies that offload to memory of the host and may sum in groups of their own.
  static constexpr const char* kNeedsOfOffload[] = {
      DDH_ALLOC_IFACE,  DDH_CONFIG_IFACE, DDH_COMM_IFACE,   DDH_COPY_IFACE,   DDH_FLATOPS_IFACE,
      DDH_WINDOW_IFACE, DDH_OPTIM_IFACE,  DDH_PARAMS_IFACE, DDH_STREAM_IFACE, nullptr};
  // The features that this base class supports. They are listed by name, so features of a later SDK are not included.
  static constexpr uint64_t kUnderstands =
      DDH_FEATURE_POSITIONS | DDH_FEATURE_UPDATES | DDH_FEATURE_PARAM_DTYPES | DDH_FEATURE_OPTIMIZERS;

  void attach(const ddh_attach_args& args) override;
  void plan(ddh_plan& out) override;
  void materialize() override;
  void acquire(const ddh_unit_use& use, ddh_unit_view& out) override;
  void release(const ddh_unit_use& use) override;
  void grads_ready(const ddh_unit_use& use) override;
  void step() override;
  std::vector<ddh_state_entry> state() override;
  void state_commit() override;
  void trains_later(const uint8_t* trains) override;

 protected:
  // ---- A strategy must define: called once by attach, when layout() and args() exist --------------------------------

  virtual std::unique_ptr<ParamStore> parameters() = 0;
  virtual std::unique_ptr<GradStore> gradients() = 0;
  [[nodiscard]] virtual OptimPart optimizer_state(const FlatSpace& space) const = 0;

  // ---- A strategy may override --------------------------------------------------------------------------------------

  // Which parameters share a flat space. By default each unit has its own.
  [[nodiscard]] virtual Grouping grouping() const { return {}; }
  // The ranks over which state is sharded: group, rank and world_size of args(). By default all ranks.
  [[nodiscard]] virtual ddh_attach_args sharing(const ddh_attach_args& args) { return args; }
  // The two phases of the update, for strategies that process the optimizer state in another way.
  virtual void prepare(const ddh_step_block&);
  virtual void update(const ddh_step_block&);

  // ---- A strategy may call ------------------------------------------------------------------------------------------

  // The whole space, on every rank.
  [[nodiscard]] OptimPart whole(const FlatSpace& space) const {
    return {0, space.numel, {args_.rank, args_.world_size}};
  }
  // Only this rank's segment.
  [[nodiscard]] OptimPart segment(const FlatSpace& space) const {
    return {space.cut.segment_offset[static_cast<size_t>(args_.rank)], space.segment_numel(args_.rank), {}};
  }
  [[nodiscard]] const ddh_attach_args& args() const { return args_; }
  [[nodiscard]] const ModelLayout& layout() const { return layout_; }
  [[nodiscard]] ParamStore& params() { return *params_; }
  [[nodiscard]] GradStore& grads() { return *grads_; }
  // Makes a group of `count` ranks: first, first + stride, ... Needs ddh.comm. [collective]
  [[nodiscard]] ddh_group* make_group(const char* name, int32_t first, int32_t stride, int32_t count) const;
  // Invalidates the views that units hold.
  void values_changed();

 private:
  ddh_attach_args args_{};
  ModelLayout layout_;
  UnitViews views_;
  std::unique_ptr<ParamStore> params_;
  std::vector<OptimState> optim_;  // per space, of optimizer_state(space)
  std::unique_ptr<GradStore> grads_;
  uint64_t version_ = 1;  // of the values
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
