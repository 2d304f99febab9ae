// SPDX-License-Identifier: Apache-2.0
//
// engine/services/optim/step_coordinator.hpp: the implementation of ddh.optim: norm, clip factor, skip, learning rate and
// step counts of a step.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
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
  // `slots`: those of the optimizer, each of one element for each of the parameter's.
  ShardCopy(const ddh_optim_shard& shard, const std::vector<ddh_slot_desc>& slots);

  // Points into this object.
  [[nodiscard]] ddh_optim_shard shard() const;
  // Masters, low-precision copies, slots and gradients of the ranges.
  [[nodiscard]] ddh::Accesses accesses() const;

 private:
  ddh_optim_shard shard_;
  std::vector<ddh_range> ranges_;
  std::vector<const float*> grads_;
  std::vector<void*> slots_;
  std::vector<uint64_t> slot_bytes_;  // of an element
};

// Learning-rate factors of parameters (ddh_param_desc.lr_scale). The optimizer is called once for each factor in a shard,
// with the ranges of that factor and a step block with the scaled rate. As in torch's parameter groups, the factor also
// scales decoupled weight decay.
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
  void for_each(const ddh_optim_shard& shard, const ddh_step_block& block, Apply&& apply) const {
    if (factors_.empty()) return apply(shard, block);
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

// What all ranks know after decide.
struct StepOutcome {
  FoldedMetrics world;    // of all ranks
  StepRequests requests;  // the most that any rank was asked for
  std::string nonfinite;  // says which gradient is not, and where; empty: all are finite
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
  void wait_for_device();
  void exchange(const Payload& mine);
  [[nodiscard]] Payload payload_of(int32_t rank) const;
  void merge();
  void count_updates();
  void require_decided(const char* call) const;
  void check_gradients() const;
  void check_lr() const;
  void check_needs(const ddh_optim_shard& shard) const;
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
  bool decided_ = false;
  bool has_exchange_ = false;
  ddh_step_block block_{};
  StepOutcome outcome_;
};

}  // namespace ddhost
