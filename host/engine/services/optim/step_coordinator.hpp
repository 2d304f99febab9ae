// SPDX-License-Identifier: Apache-2.0
//
// engine/services/optim/step_coordinator.hpp: the implementation of ddh.optim: norm, clip factor, skip, learning rate and
// step counts of a step.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ddh/ddh.h"
#include "ddh/sdk/stream.hpp"
#include "engine/numerics/exact_norm.hpp"
#include "engine/services/memory/windows.hpp"
#include "engine/services/optim/device_norm.hpp"
#include "engine/services/optim/micro_metrics.hpp"
#include "engine/services/optim/optimizers.hpp"
#include "engine/services/optim/step_account.hpp"
#include "engine/services/optim/update_check.hpp"

namespace ddhost {

// A copy of a shard's tables, for an update that runs later on a stream; and the memory that the update accesses.
class ShardCopy {
 public:
  ShardCopy(const ddh_optim_shard& shard, const Optimizers::Instance& optimizer);

  // Points into this object.
  [[nodiscard]] ddh_optim_shard shard() const;
  // Masters, low-precision copies, slots and gradients of the ranges.
  [[nodiscard]] ddh::Accesses accesses() const;

 private:
  ddh_optim_shard shard_;
  std::vector<ddh_range> ranges_;
  std::vector<const float*> grads_;
  std::vector<void*> slots_;
  std::vector<SlotPart> slot_parts_;  // that belong to the ranges
};

// Learning-rate factors of parameters (ddh_param_desc.lr_scale). The optimizer is called once for each factor in a shard,
// with the ranges of that factor and a step block with the scaled rate. As in torch's parameter groups, the factor also
// scales decoupled weight decay. An optimizer with slots of DDH_SLOT_SIZED, which follow one another in the order of the
// ranges, is called for each run of ranges of one factor.
class LrScales {
 public:
  explicit LrScales(const ddh_model_desc& model) {
    for (uint32_t p = 0; p < model.n_params; ++p) {
      const double scale = model.params[p]->lr_scale;
      factors_.push_back(scale == 0 ? 1.0 : scale);
    }
    if (std::all_of(factors_.begin(), factors_.end(), [](double f) { return f == 1.0; })) factors_.clear();
  }

  // Calls apply(shard, block) for each factor of the shard's parameters, in the order of their first ranges.
  template <class Apply>
  void for_each(const Optimizers::Instance& optimizer, const ddh_optim_shard& shard, const ddh_step_block& block,
                Apply&& apply) const {
    if (factors_.empty()) return apply(shard, block);
    if (optimizer.has_sized()) return for_each_run(optimizer, shard, block, apply);
    std::vector<double> seen;
    for (uint32_t r = 0; r < shard.n_ranges; ++r) {
      const double factor = factor_of(shard.ranges[r]);
      if (std::find(seen.begin(), seen.end(), factor) != seen.end()) continue;
      seen.push_back(factor);
      std::vector<ddh_range> ranges;
      std::copy_if(shard.ranges + r, shard.ranges + shard.n_ranges, std::back_inserter(ranges),
                   [&](const ddh_range& range) { return factor_of(range) == factor; });
      ddh_optim_shard part = shard;
      part.ranges = ranges.data();
      part.n_ranges = static_cast<uint32_t>(ranges.size());
      ddh_step_block scaled = block;
      scaled.lr *= factor;
      apply(part, scaled);
    }
  }

 private:
  [[nodiscard]] double factor_of(const ddh_range& range) const { return factors_[static_cast<size_t>(range.param)]; }

  template <class Apply>
  void for_each_run(const Optimizers::Instance& optimizer, const ddh_optim_shard& shard, const ddh_step_block& block,
                    Apply&& apply) const {
    const std::span<const ddh_range> ranges(shard.ranges, shard.n_ranges);
    for (size_t first = 0, end = 0; first < ranges.size(); first = end) {
      const double factor = factor_of(ranges[first]);
      for (end = first; end < ranges.size() && factor_of(ranges[end]) == factor;) ++end;
      std::vector<void*> slots(shard.slots, shard.slots + shard.n_slots);
      for (uint32_t i = 0; i < slots.size(); ++i)
        if (slots[i] != nullptr && !optimizer.sized[i].empty())
          slots[i] = static_cast<char*>(slots[i]) + optimizer.part(i, ranges, first).offset;
      ddh_optim_shard part = shard;
      part.ranges = &ranges[first];
      part.n_ranges = static_cast<uint32_t>(end - first);
      part.slots = slots.data();
      ddh_step_block scaled = block;
      scaled.lr *= factor;
      apply(part, scaled);
    }
  }

  std::vector<double> factors_;  // per parameter; empty: all are 1
};

struct StepSettings {
  double clip_norm = 0;   // 0 = off
  double clip_value = 0;  // 0 = off
  bool skip_nonfinite = true;
  bool rounds_sums = false;    // precision.reduce_dtype=bf16: exchanges round each rank's contribution
  bool check_plugins = false;  // run.check_plugins
};

// Requests that a rank received from outside. All ranks agree on them.
struct StepRequests {
  bool stop = false;           // end after this step
  int64_t saves = 0;           // how often a checkpoint was asked for since the run began
  bool saving = false;         // this rank is still writing its part of a checkpoint
  bool save_by_clock = false;  // checkpoint.every_minutes have passed
};

// What all ranks know after decide; after decide_in, what its group knows.
struct StepOutcome {
  bool is_of_group = false;          // decide_in has decided; what follows is not of all ranks
  bool is_quiet = false;             // the other ranks do not know this step's metrics yet
  FoldedMetrics world;               // of all ranks, or of the group
  StepRequests requests;             // the most that any rank was asked for
  std::string nonfinite;             // says which gradient is not, and where; empty: all are finite
  std::vector<FoldedMetrics> quiet;  // of all ranks, of the quiet steps before a decide of the world
};

class StepCoordinator final : public NormSink {
 public:
  StepCoordinator(const Comm& comm, Device& device, Windows& windows, const ddh_model_desc& model,
                  StepSettings settings)
      : comm_(comm),
        device_(device),
        windows_(windows),
        model_(model),
        settings_(settings),
        lr_scales_(model),
        account_(model) {
    if (DeviceNorm::is_possible(device)) device_norm_ = std::make_unique<DeviceNorm>(device, windows.memory());
  }

  // Called before the first step; see Optimizers.
  void set_optimizers(const std::vector<OptimizerRef>& optimizers, std::span<const ddh_run_program> programs);
  // Steps that are a multiple of it need a decide of all ranks (ddh_rhythm). `scales_loss`: then no step can do without.
  void set_rhythm(uint32_t world_every, bool scales_loss) {
    world_every_ = world_every;
    scales_loss_ = scales_loss;
  }
  [[nodiscard]] int64_t world_every() const { return world_every_; }
  [[nodiscard]] const Optimizers& optimizers() const { return *optimizers_; }
  [[nodiscard]] Optimizers& optimizers() { return *optimizers_; }

  // See Optimizers.
  void forget_updates(int32_t program) { optimizers_->forget_updates(program); }

  void begin(int64_t step, int32_t program, double lr, double seed_scale, double loss_scale);
  // This rank's metrics of the step, which stay as they are until decide has read them. `take_results` writes them, when
  // decide has waited for the device; empty: they are there.
  void set_metrics(const MicroMetrics& mine, const StepRequests& requests, std::function<void()> take_results = {}) {
    mine_ = &mine;
    requests_ = requests;
    take_results_ = std::move(take_results);
  }

  void add_gradient(const float* grad, uint64_t begin, uint64_t numel, std::span<const ddh_range> ranges) override {
    account_.add_gradient(begin, numel, ranges);
    norm_.add(grad, begin, numel, ranges);
  }
  // Whether gradients in memory of the device are summed there.
  [[nodiscard]] bool sums_on_device() const override { return device_norm_ != nullptr; }
  // Error: not sums_on_device.
  void add_device_gradient(const float* grad, uint64_t begin, uint64_t numel, std::span<const ddh_range> ranges,
                           ddh_stream* stream) override {
    if (device_norm_ == nullptr)
      ddh::fail(DDH_UNIMPLEMENTED, "device '", device_.name(), "' does not sum squares (ddh.flatops exact_squares), ",
                "which a transport of its memory needs; choose another --comm");
    account_.add_gradient(begin, numel, ranges);
    device_norm_->add(grad, begin, numel, ranges, stream);
  }
  // Records that an exchange sums gradients in this step.
  void note_exchange() { has_exchange_ = true; }
  // The strategy has summed gradients itself. Throws if such sums can't satisfy the settings.
  void check_own_sums() const;
  const ddh_step_block& decide();
  // Decides in a group of this rank; nullptr: this rank alone. Quiet: nothing else is sent.
  const ddh_step_block& decide_in(const ddh_decide_args& args);
  // Metrics of the quiet steps since the last decide of the world, over all ranks. [collective]
  [[nodiscard]] std::vector<FoldedMetrics> share_quiet_metrics();
  void prepare(const ddh_optim_shard& shard, int32_t replica_index, int32_t replica_count, ddh_stream* stream);
  void sum_norms();
  void update(const ddh_optim_shard& shard, ddh_stream* stream);

  // Called after the strategy's step returned without an error. Throws if it did not call decide, or continued after a
  // refusal.
  void require_done() const;
  [[nodiscard]] const StepAccount& account() const { return account_; }
  // The optimizer of the last step.
  [[nodiscard]] const PluginCaller& optimizer_caller() const { return optimizer_->call; }
  // Records that a call of ddh.optim was refused; the first refusal of a step is kept.
  void note_refusal(const std::string& sentence) {
    if (refusal_.empty()) refusal_ = sentence;
  }

  [[nodiscard]] const ddh_step_block& block() const { return block_; }
  [[nodiscard]] const StepOutcome& outcome() const { return outcome_; }

 private:
  struct Payload;
  void require_undecided(const char* call) const;
  void begin_decision(const char* call, ddh_group* group, int32_t deciders);
  void wait_for_device();
  [[nodiscard]] Payload my_payload();
  void exchange(bool with_quiet);
  [[nodiscard]] Payload payload_of(int32_t rank) const;
  void merge_gradients();
  void merge_requests();
  void fold_metrics();
  void take_quiet_metrics();
  void finish_decision();
  void finish_world();
  void wait_for_world();
  void share_with_world();
  void count_updates();
  void require_decided(const char* call) const;
  void check_gradients() const;
  void check_lr() const;
  void check_needs(const Optimizers::Instance& optimizer, const ddh_optim_shard& shard) const;
  void advance_numbers(const Optimizers::Instance& optimizer) const;
  void update_by(Optimizers::Instance& optimizer, const ddh_optim_shard& given, ddh_stream* stream);
  void update_now(const Optimizers::Instance& optimizer, const ddh_optim_shard& shard, const ddh_step_block& block,
                  const std::vector<int64_t>& steps, ddh_stream* stream, const PluginCaller& call) const;

  const Comm& comm_;
  Device& device_;
  Windows& windows_;
  const ddh_model_desc& model_;
  const StepSettings settings_;
  const LrScales lr_scales_;
  std::unique_ptr<Optimizers> optimizers_;
  std::unique_ptr<const UpdateCheck> check_;  // null in a normal run

  int32_t program_ = 0;
  Optimizers::Instance* optimizer_ = nullptr;  // of the step's program
  GradientNorm norm_;
  std::unique_ptr<DeviceNorm> device_norm_;  // null: the host sums
  StepAccount account_;
  std::string refusal_;
  const MicroMetrics* mine_ = nullptr;
  std::function<void()> take_results_;
  std::vector<double> sent_, received_;  // payload and rows of metrics, of this rank and of all; kept between steps
  StepRequests requests_;
  int64_t saves_agreed_ = 0;  // of the last decide of the world
  int64_t world_every_ = 1;
  bool scales_loss_ = false;
  ddh_group* group_ = nullptr;         // of the last exchange; nullptr: this rank alone
  int32_t deciders_ = 1;               // its ranks
  std::vector<double> quiet_metrics_;  // of this rank: one row for each quiet step
  std::vector<uint32_t> quiet_sizes_;  // metrics in each row
  bool decided_ = false;
  bool has_exchange_ = false;
  ddh_step_block block_{};
  StepOutcome outcome_;
};

}  // namespace ddhost
