// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/data_parallel.hpp: the base of strategies in which every rank computes whole units on its own samples.
// Strategies differ in what a rank keeps of optimizer state, parameters and gradients, and where. A derived class names
// only these three stores:
//
//   optimizer()    ResidentOptim (ddh/sdk/optim/optim_store.hpp), TieredOptim, optim_of (ddh/sdk/tier/tiered_optim.hpp)
//   parameters()   ReplicatedParams, PublishedParams, PrefetchedParams (ddh/sdk/params/param_store.hpp)
//   gradients()    FullGrads, GradRing (ddh/sdk/grads/full_grads.hpp, ddh/sdk/grads/grad_ring.hpp)
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

#include "ddh/sdk/grads/coded_grads.hpp"
#include "ddh/sdk/grads/full_grads.hpp"
#include "ddh/sdk/grads/grad_ring.hpp"
#include "ddh/sdk/grads/grad_store.hpp"
#include "ddh/sdk/optim/optim_store.hpp"
#include "ddh/sdk/options.hpp"
#include "ddh/sdk/params/param_store.hpp"
#include "ddh/sdk/strategy.hpp"
#include "ddh/sdk/tier/tiered_optim.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class DataParallel : public Strategy {
 public:
  using Strategy::Strategy;

  // The services that the base and its stores use, for DDH_CXX_PLUGIN.
  static constexpr const char* kNeeds[] = {DDH_ALLOC_IFACE,   DDH_CONFIG_IFACE, DDH_COMM_IFACE,  DDH_COPY_IFACE,
                                           DDH_FLATOPS_IFACE, DDH_WINDOW_IFACE, DDH_OPTIM_IFACE, DDH_PARAMS_IFACE,
                                           DDH_STREAM_IFACE,  nullptr};
  static constexpr const char* kWants[] = {DDH_LOG_IFACE, DDH_METRICS_IFACE, DDH_CODECS_IFACE, nullptr};
  // The capabilities of every strategy on this base.
  static constexpr uint64_t kCaps = DDH_CAP_IN_PROCESS | DDH_CAP_STREAM_ORDERED | DDH_CAP_DRY_ATTACH;
  // The features that this base class supports. They are listed by name, so features of a later SDK are not included.
  static constexpr uint64_t kUnderstands =
      DDH_FEATURE_POSITIONS | DDH_FEATURE_UPDATES | DDH_FEATURE_PARAM_DTYPES | DDH_FEATURE_OPTIMIZERS;

  void attach(const ddh_attach_args& args) override;
  void plan(ddh_plan& out) override;
  void materialize() override;
  void step_begin(const ddh_step_begin_args& args) override;
  void acquire(const ddh_unit_use& use, ddh_unit_view& out) override;
  void release(const ddh_unit_use& use) override;
  void next_block(const ddh_unit_use& use, ddh_grad_block& out) override;
  void grads_ready(const ddh_unit_use& use) override;
  void step() override;
  std::vector<ddh_state_entry> state() override;
  void state_read(uint32_t entry, uint64_t offset, uint64_t numel, void* dst) override {
    optim_->state_read(entry, offset, numel, dst);
  }
  void state_write(uint32_t entry, uint64_t offset, uint64_t numel, const void* src) override {
    optim_->state_write(entry, offset, numel, src);
  }
  void state_commit() override;
  void trains_later(const uint8_t* trains) override;

 protected:
  // ---- A strategy must define: called once by attach in this order, when layout() and args() exist ------------------

  virtual std::unique_ptr<OptimStore> optimizer() = 0;
  virtual std::unique_ptr<ParamStore> parameters() = 0;
  virtual std::unique_ptr<GradStore> gradients() = 0;

  // ---- A strategy may override --------------------------------------------------------------------------------------

  // Which parameters share a flat space. By default each unit has its own.
  [[nodiscard]] virtual Grouping grouping() const { return {}; }
  // The ranks over which state is sharded, which are neighbours: group, rank and world_size of args(). By default all ranks.
  [[nodiscard]] virtual ddh_attach_args sharing(const ddh_attach_args& args) { return args; }
  // The decision of a step. By default all ranks take part.
  virtual const ddh_step_block& decide_step() { return decide(host); }

  // ---- A strategy may call ------------------------------------------------------------------------------------------

  [[nodiscard]] const ddh_attach_args& args() const { return args_; }
  [[nodiscard]] const ModelLayout& layout() const { return layout_; }
  // Makes a group of `count` ranks: first, first + stride, ... Needs ddh.comm. [collective]
  [[nodiscard]] ddh_group* make_group(const char* name, int32_t first, int32_t stride, int32_t count) const;

 private:
  // Invalidates the views that units hold.
  void values_changed();

  ddh_attach_args args_{};
  ModelLayout layout_;
  UnitViews views_;
  std::unique_ptr<ParamStore> params_;
  std::unique_ptr<GradStore> grads_;
  std::unique_ptr<OptimStore> optim_;  // destroyed before the views, into which a tier may still read
  uint64_t version_ = 1;               // of the values
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
